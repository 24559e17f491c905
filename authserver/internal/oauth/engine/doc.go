// Package engine implements the OAuth protocol of the authorization and token endpoints.
//
// It is the only importer of fosite, and its API uses the types of packages grant, client and consent. fosite parses
// and checks the authorization request, dispatches the token request to the handler of its grant type, and its error
// values carry the codes. grant.Service makes the decisions that fosite would make outside a transaction (codes, PKCE,
// refresh tokens, revocation), through handlers that this package registers with fosite. fosite never writes a response
// and never sees a store.
//
//	GET /oauth/authorize   Identify (client, redirect URI, duplicates: a page) → login →
//	                       ParseAuthorization (the rest: a redirect)
//	POST …/oauth/token     Token (client → code or refresh token → access token)
package engine
