// Package engine answers: is this request OAuth, and what does OAuth say to it?
//
// It is the only importer of fosite, and speaks grant, client and consent to everyone else. fosite parses and
// checks the authorization request, dispatches the token request to the handler of its grant type, and its error
// values carry the codes. What fosite would decide outside a transaction (codes, PKCE, refresh tokens, revocation) is
// decided by grant.Keeper, through handlers of our own that are registered with it. fosite never writes a response and
// never sees a store.
//
//	GET /oauth/authorize   Identify (client, redirect URI, duplicates: a page) → login → Ask (the rest: a redirect)
//	POST …/oauth/token     Token (client → code or refresh token → access token)
package engine
