// Package token answers: how does a client exchange a code or a refresh token?
//
//	POST /v1/account/oauth/token   (spec 4.3, contract section 3; POST /token at the gateway is the same)
//
//	handler.go   the phases: read → decide (engine) → answer; every error on one table
//	limits.go    refusals are counted; 429 in their place where there were too many
//	decode.go    a stranger's bytes to parameters: strict JSON, or a form (RFC 6749, section 4.1.3)
package token
