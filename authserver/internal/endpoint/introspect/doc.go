// Package introspect answers: what may the bearer of this token do, right now?
//
//	POST /v1/account/oauth/introspect   (RFC 7662; contract, section 5)
//
// Internal services ask it: clients of kind service, by HTTP Basic or client_secret_post. It knows access tokens of
// both resources and personal access tokens. Everything else is {"active":false}, with no word on why: forged, expired,
// revoked, refresh tokens, codes, those of a user who is no member any more, and a connector's while LLM integration is
// off. A store that does not answer is a 503, never "inactive".
//
//	handler.go    the steps, in their order
//	caller.go     who asks
//	judgement.go  what the token is, and what is said of it
package introspect
