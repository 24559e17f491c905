// Package oidclogin answers: may whom the deployment's OpenID Connect provider vouches for come in here?
//
//	GET /login/upstream           Start     ?return= is a local path to go on to: 303 to the provider
//	GET /login/again/upstream     Again     the same, for a new proof by whoever is signed in
//	GET /login/upstream/callback  Callback  code, state: 303 to where the person was going, else a page
//	GET /settings/provider        Page      whether the user's account there is linked
//	POST /settings/provider/unlink  Unlink  key: not where the user could not sign in without it
//
// Who may come in (decide.go): somebody whose account at the provider is linked to a user here; or whose e-mail
// address, which the provider has verified, is that of a user who has no other account there, and that link is made
// then. Nobody becomes a user, nobody gets a membership, and a disabled user stays out.
//
// A sign-in counts as a fresh proof of who is there from the moment that the provider names (auth_time), and not at all
// where it names none: the provider may have let a browser through that it has known for weeks. Whoever then makes a
// credential is asked anew, at /login/again, where the provider is told to ask and has to say that it did.
//
// An attempt is bound to the browser that began it, and good for one answer within ten minutes (ceremony C1 to C3).
// Nothing that came with the caller's request is sent to the provider.
package oidclogin
