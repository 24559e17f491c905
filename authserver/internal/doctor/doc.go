// Package doctor answers: why can this connector not connect?
//
// It walks a running server as one connector would, from the first call without a token to the refresh, judges each
// answer, and says in words what is wrong, what the connector makes of it, and how to mend it. It knows no
// configuration and no database: what it finds is what a connector finds.
//
//	1 reach      the URL, the refusal without a token and its challenge     reach.go
//	2 resource   the metadata of the protected resource (RFC 9728)          resource.go
//	3 server     the metadata of the authorization server (RFC 8414)        discover.go, server.go, guesses.go
//	4 authorize  the request, sign-in, consent, the way back                authorize.go, consent.go, forms.go, callback.go
//	5 token      the code exchanged                                         token.go
//	6 call       initialize, tools, one call, a wrong token                 call.go
//	7 refresh    the next tokens, the former ones, the replay if asked for  refresh.go
//	8 clean up   its own grant and sign-in ended                            refresh.go
//
// What can be found is one table (diagnoses*.go). Invariants:
//
//	D1 Nothing secret is shown: codes, tokens, cookies, passwords, verifiers (wire.Secrets).
//	D2 Every answer is bounded in time and size, and nothing in it is obeyed: a hostile server is a finding too (package wire).
//	D3 A password is typed only into a page of the server that was named, over TLS or on loopback.
//	D4 A grant that it got is given back, also when a later step fails or the person gives up.
//
// Callers: cmd/authserver.
package doctor
