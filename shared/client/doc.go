// Package client answers: how does a Go program speak to Almoner?
//
// A Client acts in one workspace with the tokens of an oauth2.TokenSource: a personal access token is
// oauth2.StaticTokenSource, a Connector makes one that refreshes, a ConfidentialApp gets a token that is good for 90
// days.
//
//   - C1 Lists are iterators. They follow the cursor to the end, past pages that are empty too (spec 4.1).
//   - C2 What the API refuses is an *Error, whichever of the three shapes it was written in (spec 7.1). It says whether trying
//     again can help, and never holds a credential or any part of a query.
//   - C3 Each write to the Resource API carries an Idempotency-Key of its own, so that it can be sent again and happens once
//     (contract, section 6). Only such writes and reads are ever sent again, and only with WithRetries.
//   - C4 A refresh token is used once: a Source refreshes for all its callers one at a time, and hands a new token out only
//     once it is kept. Presenting a token that was replaced ends the grant (spec 5.2.3).
//   - C5 A credential goes to the base URL and nowhere else: no redirect is followed.
//
// Everything here is safe for concurrent use. No value prints a secret of its own, but an *oauth2.Token does.
package client
