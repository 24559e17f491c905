// Package forgotten serves the pages on which a person who forgot the password sets a new one.
//
//	GET  /login/forgotten  Page   the form; ?requested after it was sent
//	POST /login/forgotten  Ask    email: 303 to ?requested; 400, 429, 503
//	GET  /login/reset      Open   ?token=: the form for the new password, or a page that says that the link has ended
//	POST /login/reset      Set    token, new-password, remove, listed, end-…: 303 to the sign-in page; 400, 404, 429,
//	                              503
//
// Its invariants:
//
//	F1 The response of Ask, and the work before it, do not depend on whether the address has an account: Ask queues a
//	   message, and the worker of the queue looks the address up.
//	F2 A GET changes nothing: programs that follow the links in mails do not use a link up.
//	F3 A link works once and for 30 minutes. Of two concurrent uses one wins.
//	F4 A new password ends every sign-in of the user and every other link.
//	F5 If a workspace of the user requires a second factor, a link by mail removes no passkey: access to the mailbox
//	   alone does not replace the second factor. A link of an operator may remove passkeys.
//	F6 A new password ends the user's personal access tokens and grants in its transaction, except those that the page
//	   listed and the user kept.
//	F7 If the address was never proven, a new password first ends all that the account had (useraccount.Takeover), and
//	   proves it. A second factor does not prevent that, even if a workspace requires one, because another person may
//	   have added it.
package forgotten
