// Package delivery sends the events of a workspace to its webhook endpoints (contract, section 6a).
//
//	writer.go     Writer: how endpoints are changed
//	deliverer.go  Deliverer: what is sent next to an endpoint, and what follows from the answer
//	request.go    the signed request
//
// Package worker calls the Deliverer for each endpoint that has something to send. Its invariants:
//
//	W1 Events are sent in the order of their sequence, the next one only after the one before was accepted.
//	W2 An event is sent at least once, each time with the same webhook-id, whenever a process dies.
//	W3 Only events are sent that the endpoint's user may read at that moment. An endpoint whose user may not manage
//	   API access any more is disabled.
//	W4 Only public addresses are dialled, and redirects are not followed (shared/publicnet).
//	W5 An endpoint that does not accept an event for three days is disabled, and one that answers 410 at once.
//	W6 No log, error or record of a delivery contains a secret, a URL or what the endpoint answered.
package delivery
