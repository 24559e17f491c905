// Package login serves sign-in with a password and sign-out.
//
//	GET  /login    Page     the form; ?return= is the local path that follows
//	POST /login    SignIn   email, password, return: 303 on success, else the form again (400, 429, 503)
//	POST /logout   SignOut  return: 303
//
// The responses do not reveal whether an account exists. An unknown e-mail address, a wrong password and a disabled
// account get the same response after the same work.
package login
