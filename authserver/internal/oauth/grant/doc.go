// Package grant stores and advances OAuth grants.
//
// A consent creates one grant: pending while its code is unused, active once the code was redeemed, and finally
// revoked. Two stores hold it. Redis (RotationStore) decides races: each decision is one script on one key. Postgres
// (GrantStore) is authoritative: nothing succeeds against what it has committed, even if Redis has lost data. Service
// updates the two in the only order that preserves the invariants:
//
//	G1 A code is redeemed at most once. A second redemption that is otherwise valid revokes the grant.
//	G2 A grant has one current refresh token; at most one success per generation.
//	G3 Any authentic refresh token of a smaller generation revokes the grant, at any time. Forged, cut or
//	   foreign tokens revoke nothing.
//	G4 Nothing succeeds at or after the grant's end, and no access token outlives it. The stores' clocks decide.
//	G5 Confidential grants have no refresh token.
//	G6 Only hashes of codes and tokens are stored.
//	G7 Revoked is final.
//	G8 A retry by this server (after a lost reply) is no replay: each call carries a nonce.
//	G9 A response reports a revocation only after Postgres has committed it.
//	G10 A client that got a 503 can try again: a decision that was given up changes nothing later, and what it
//	   has already changed is undone before the grant's next decision.
//	G11 A sender that repeats its request gets the same refresh token, and no other sender does. This token is
//	   derived from the presented credential, the grant and the sender's proof, and is not stored. A request can be
//	   repeated within 60 s and before the token is used.
//	G12 A grant has the permissions of the approval whose code was redeemed. An approval that is refused has
//	   changed nothing.
//
// A request of a public client with a current token or an unused code is decided directly: one script, then one
// statement that takes the step only if the client, the user and the workspace allow it. All other requests read a
// snapshot of Postgres first, which gives the reason for a refusal.
//
// One case loses a token. If Postgres refuses a direct step, for example because LLM integration is off, Service undoes
// the step in Redis. If the process crashes between the two, the step stays in Redis: the client has no successor, and
// its next request with the same token is treated as a replay unless it repeats the request within 60 s with the same
// proof (G11). The user must connect again. A crash after a commit and before the response has the same result.
//
// Callers: engine (redeem, rotate), endpoint/protocol/authorize (open), endpoint/protocol/revoke and endpoint/settings
// (revoke).
package grant
