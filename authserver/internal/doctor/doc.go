// Package doctor finds out why a connector cannot connect.
//
// It runs the steps of one connector against a running server, from the first call without a token to the
// refresh, judges each response, and describes what is wrong, how it affects the connector, and how to fix
// it. It uses no configuration and no database: it sees what a connector sees.
//
//	1 reach      the URL, the refusal without a token and its challenge     reach.go
//	2 resource   the metadata of the protected resource (RFC 9728)          resource.go
//	3 server     the metadata of the authorization server (RFC 8414)        discover.go, server.go, guesses.go
//	4 authorize  the request, sign-in, consent and callback                 authorize.go, consent.go, forms.go,
//	                                                                        callback.go
//	5 token      the exchange of the code                                   token.go
//	6 call       initialize, tools, one call, an invalid token              call.go
//	7 refresh    the new tokens, the old ones, a replay if requested        refresh.go
//	8 clean up   revocation of the grant and sign-out                       refresh.go
//
// The possible findings are in findings.json. Invariants:
//
//	D1 No secret is shown: codes, tokens, cookies, passwords, verifiers (wire.Secrets).
//	D2 Every response is bounded in time and size, and nothing in it is executed: a hostile server is a finding too
//	   (package wire).
//	D3 The password is sent only to a page of the named server, over TLS or on loopback.
//	D4 The grant is revoked at the end, also if a later step fails or the user cancels.
//
// The caller is cmd/authserver.
package doctor
