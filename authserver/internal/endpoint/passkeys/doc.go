// Package passkeys answers: may this person come in by a passkey, and which passkeys do they have?
//
//	POST /login/passkey/options        SignInOptions  a challenge (JSON)
//	POST /login/passkey                SignIn         credential, return: 303, else the sign-in page (400, 503)
//	POST /login/again/passkey/options  AgainOptions   a challenge for this sign-in (JSON)
//	POST /login/again/passkey          Again          credential, return: 303, else back to the question
//	GET  /settings/passkeys            Page           the user's passkeys
//	POST /settings/passkeys/options    AddOptions     a challenge for a new one (JSON)
//	POST /settings/passkeys            Add            name, credential
//	POST /settings/passkeys/remove     Remove         key, id
//
// The rules are those of package passkey (P1 to P4). Adding and removing need a fresh proof of who is there. What must
// not be learned here: whether a credential exists. One that is unknown, stopped or a disabled user's gets the same
// answer as one whose signature is bad.
package passkeys
