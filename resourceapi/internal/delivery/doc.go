// Package delivery sends the events of a workspace to its webhook endpoints (contract, section 6a).
//
//	writer.go     Writer changes endpoints
//	deliverer.go  Deliverer sends the next delivery of an endpoint and records the result
//	personal.go   the personal data of an event
//	request.go    the signed request
//
// Package worker calls the Deliverer for each endpoint that has pending deliveries. Its invariants:
//
//	W1 Events are sent in the order of their sequence. An event is sent after the previous one was accepted.
//	W2 An event is sent at least once, with the same webhook-id each time, even if a process crashes.
//	W3 An event is sent only if the endpoint's user may read it at that moment. If the user loses account:api:access,
//	   the endpoint is disabled.
//	W4 Only public addresses are dialled, and redirects are not followed (shared/publicnet).
//	W5 An endpoint is disabled if it accepts no event for three days, and immediately if it answers 410.
//	W6 The receiver's Retry-After delays the next attempt by up to six hours.
//	W7 No log, error or record of a delivery contains a secret, a URL or the body of the response.
//	W8 Personal data is sent only if the endpoint's user asked for it on its page and may read it at that moment. It
//	   is read for each attempt and never stored with the delivery.
//	W9 An endpoint that a personal access token or an access token added gets what that credential may read at that
//	   moment, and is disabled once it has ended: revoked, replaced or expired.
package delivery
