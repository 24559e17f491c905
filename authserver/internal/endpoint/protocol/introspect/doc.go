// Package introspect serves token introspection: it reports what the bearer of a token may do now.
//
//	POST /v1/account/oauth/introspect   (RFC 7662; contract, section 5)
//
// The callers are internal services: clients of kind service, by HTTP Basic or client_secret_post. The endpoint
// describes access tokens of both resources and personal access tokens. Everything else is {"active":false}, without a
// reason: forged, expired and revoked tokens, refresh tokens, codes, tokens of users who are no longer members, and
// tokens of connectors while LLM integration is off. An unavailable store is a 503, never "inactive".
//
//	handler.go    the steps, in their order
//	caller.go     the caller's credentials
//	answer.go     the token and its description
package introspect
