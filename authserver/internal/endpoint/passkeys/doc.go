// Package passkeys serves sign-in with a passkey and the management of a user's passkeys.
//
//	POST /login/passkey/options        SignInOptions  a challenge (JSON)
//	POST /login/passkey                SignIn         credential, return: 303, else the sign-in page (400, 503)
//	POST /login/again/passkey/options  AgainOptions   a challenge for this sign-in (JSON)
//	POST /login/again/passkey          Again          credential, return: 303, else back to the form
//	GET  /settings/passkeys            Page           the user's passkeys
//	POST /settings/passkeys/options    AddOptions     a challenge for a new passkey (JSON)
//	POST /settings/passkeys            Add            name, credential
//	POST /settings/passkeys/remove     Remove         key, id
//
// Package passkey states the rules (P1 to P4). Adding and removing need a recent authentication. The responses do not
// reveal whether a credential exists: an unknown or stopped credential, a credential of a disabled user and a bad
// signature get the same response.
package passkeys
