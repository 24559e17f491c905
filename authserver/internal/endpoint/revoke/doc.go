// Package revoke answers: how does a client give back what it was granted?
//
//	POST /v1/account/oauth/revoke   (RFC 7009; contract, section 5)
//
// A refresh token, a superseded one too, or an access token ends the grant that it is of, and with it every other token
// of that grant. The caller must be the grant's client: another's token is left alone. What is no token of a grant
// (garbage, what has expired or ended, personal access tokens, codes) is answered 200 like any other (RFC 7009, section
// 2.2). The 200 goes out once Postgres has committed (G9); a store that does not answer is a 503, never a 200.
package revoke
