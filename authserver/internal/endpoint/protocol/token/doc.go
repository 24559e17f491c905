// Package token serves the token endpoint, where a client exchanges a code or a refresh token.
//
//	POST /v1/account/oauth/token   (spec 4.3, contract section 3; POST /token at the gateway is the same)
//
//	handler.go   the phases: read, decide (engine), respond; one table maps every error
//	limits.go    counts refusals; too many become a 429
//	decode.go    parses untrusted bodies: strict JSON, or a form (RFC 6749, section 4.1.3)
package token
