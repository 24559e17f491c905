// Package login answers: is this person who they say they are, and which browser is it?
//
//	GET  /login    Page     the form; ?return= is a local path to go on to
//	POST /login    SignIn   email, password, return: 303 on success, else the form again (400, 429, 503)
//	POST /logout   SignOut  return: 303
//
// What must not be learned here: whether an account exists. An unknown e-mail address, a wrong password and a disabled
// account get the same answer after the same work.
package login
