// Package clientassertion answers: has this client signed that it is itself?
//
// A client with a metadata document may have keys there, and prove by a JWT that a token request is its own
// (private_key_jwt; RFC 7523, section 3, and RFC 7521, section 4.2). What is believed is narrow:
//
//  1. the compact form of a JWS in one spelling, each member once, nothing critical, an algorithm of the list and a key made for it;
//  2. iss and sub are the client, aud is this server alone, by the issuer or the token endpoint's address, to the letter;
//  3. exp is there and at most ten minutes ahead, iat and nbf are not ahead;
//  4. jti is there, and is accepted once (Redis remembers it until exp; where Redis does not answer, nobody is let in).
//
// The keys are those of the copy that clientdoc keeps. A key that is not among them makes it read the document again,
// not more often than twice a minute; a document that cannot be read at the moment leaves the copy's keys in force.
package clientassertion
