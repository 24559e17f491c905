// Package client is a Go client for the Almoner API.
//
// A Client acts in one workspace with the tokens of an oauth2.TokenSource: use oauth2.StaticTokenSource for a
// personal access token, Connector.Source for a token that refreshes, and ConfidentialApp for a token that is
// valid for 90 days.
//
//   - C1 Lists are iterators. They follow the cursor to the end, also past empty pages (spec 4.1).
//   - C2 A refusal of the API is an *Error, in whichever of the three shapes it was written (spec 7.1). It says
//     whether a retry can help, and never contains a credential or any part of a query.
//   - C3 Each write to the Resource API carries a unique Idempotency-Key, so that it can be retried and takes effect
//     once (contract, section 6). Only such writes and reads are ever retried, and only with WithRetries.
//   - C4 A refresh token is used once: a Source refreshes for all its callers, one at a time, and returns a new token
//     only once it is stored. Presenting a replaced token ends the grant (spec 5.2.3).
//   - C5 A credential is sent to the base URL only: no redirect is followed.
//   - C6 Each token request carries a unique Idempotency-Key and is retried if no response arrives. Almoner accepts the
//     repeated request for 60 seconds (contract, section 3), so a lost response does not revoke the grant.
//
// Everything in this package is safe for concurrent use. No type of this package prints a secret, but
// *oauth2.Token does.
package client
