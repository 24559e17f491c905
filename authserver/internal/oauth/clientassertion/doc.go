// Package clientassertion verifies the signed assertions with which clients authenticate (private_key_jwt).
//
// A client with a metadata document may publish keys there and authenticate its token requests with a JWT (RFC 7523,
// section 3, and RFC 7521, section 4.2). An assertion must meet these conditions:
//
//  1. it is a JWS in compact form, in its one canonical spelling, with no duplicate member, no critical
//     header, an algorithm of the list and a key made for it;
//  2. iss and sub are the client, and aud is only this server, as the issuer or the URL of the token
//     endpoint, compared exactly;
//  3. exp is present and at most ten minutes ahead; iat and nbf are not in the future;
//  4. jti is present and is accepted once. Redis remembers it until exp. If Redis does not respond, the
//     assertion is refused.
//
// The keys come from the copy that clientmetadata stores. An unknown key causes a new fetch of the document, at most
// twice a minute. If the document cannot be fetched, the keys of the copy stay valid.
package clientassertion
