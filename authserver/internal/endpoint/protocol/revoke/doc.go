// Package revoke serves token revocation.
//
//	POST /v1/account/oauth/revoke   (RFC 7009; contract, section 5)
//
// A refresh token (including a superseded one) or an access token (including an expired one) revokes its grant, and
// with it every other token of that grant. The caller must be the client of the grant: a token of another client is
// ignored. A personal access token is revoked by any caller that has it, also without a client, and its owner gets a
// mail. Text that is no token (garbage, ended tokens, codes) gets the same 200 (RFC 7009, section 2.2). The 200 is sent
// after Postgres has committed (G9). An unavailable store is a 503, never a 200.
package revoke
