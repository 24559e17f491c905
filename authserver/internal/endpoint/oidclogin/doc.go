// Package oidclogin serves sign-in at the deployment's OpenID Connect provider.
//
//	GET  /login/upstream            Start     ?return= is the local path that follows: 303 to the provider
//	GET  /login/again/upstream      Again     the same, to authenticate again while signed in
//	GET  /login/upstream/callback   Callback  code, state: 303 to the return path, else a page
//	POST /login/upstream/confirm    Confirm   key: 303 to the return path, after a page that says what this ends
//	GET  /settings/provider         Page      whether the user's account there is linked
//	POST /settings/provider/unlink  Unlink    key: refused if the user could not sign in without it
//
// Two kinds of users may sign in (decide.go): a user whose account at the provider is linked, and a user whose e-mail
// address the provider has verified and who has no other account there. The second gets linked. A sign-in never creates
// a user or a membership, and a disabled user stays signed out. If the address was never proven to be the user's, the
// sign-in ends all that the account has (useraccount.Takeover), after the person has read that and confirmed it.
//
// A sign-in counts as fresh from the time that the provider reports (auth_time), and not at all if it reports none,
// because the provider may have accepted an old session of the browser. A user who then creates a credential must
// authenticate again at /login/again. That request tells the provider to prompt, and the provider must report that it
// did.
//
// An attempt is bound to the browser that began it and accepts one response within ten minutes (package loginstate, C1
// to C3). Nothing from the caller's request is sent to the provider.
package oidclogin
