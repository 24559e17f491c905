// Package revoke serves token revocation.
//
//	POST /v1/account/oauth/revoke   (RFC 7009; contract, section 5)
//
// A refresh token (including a superseded one) or an access token revokes its grant, and with it every other token of
// that grant. The caller must be the client of the grant: a token of another client is ignored. Text that is no token
// of a grant (garbage, expired or ended tokens, personal access tokens, codes) gets the same 200 (RFC 7009, section
// 2.2). The 200 is sent after Postgres has committed (G9). An unavailable store is a 503, never a 200.
package revoke
