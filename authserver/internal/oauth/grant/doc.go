// Package grant answers: what has become of one consent?
//
// One consent is one grant: pending while its code is unused, active once the code was redeemed, revoked for good.
// Two stores keep it. Redis (Redis) decides races: each decision is one script on one key. Postgres
// (Postgres) is the fence and the truth: nothing succeeds against what it has committed, whatever Redis
// has forgotten. The Keeper walks the two in the one order that keeps the invariants:
//
//	G1 A code is redeemed at most once. A second redemption that is otherwise valid revokes the grant.
//	G2 A grant has one current refresh token; at most one success per generation.
//	G3 Any authentic refresh token of a smaller generation, whenever it comes, revokes the grant. Forged, cut or
//	   foreign tokens revoke nothing.
//	G4 Nothing succeeds at or after the grant's end, and no access token outlives it. The stores' clocks decide.
//	G5 Confidential grants have no refresh token.
//	G6 Only hashes of codes and tokens are stored.
//	G7 Revoked is final.
//	G8 A retry of our own (a lost reply) is no replay: each call carries a nonce.
//	G9 A revocation is answered only after Postgres has committed it.
//	G10 A client that was answered 503 can try again: a decision that was given up changes nothing later, and what it has
//	   changed already is taken back before the grant's next decision.
//
// Callers: engine (redeem, rotate), endpoint/authorize (open), endpoint/revoke and settings (revoke).
package grant
