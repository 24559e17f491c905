// Package invitation serves the page of an invitation to a workspace.
//
//	GET  /invitation?token=    Page     who invites to what; changes nothing, so that link previews do no harm
//	POST /invitation           Answer   token, key, decision: accept or decline
//	POST /invitation/account   Create   token, name, password: creates an account, accepts and signs in
//	POST /invitation/passkey   CreateWithPasskey: token, name, credential; the same without a password
//	POST /invitation/passkey/options   PasskeyOptions: token, name; the challenge for the page's script
//
// Answers are limited by token and network (session.Attempts.Answered), so that a stranger cannot lock out the
// invited person. The link is a secret. If the address has an account, the link works only for its signed-in user. The
// token is only in this server's own URLs and forms: the pages send no Referer to other sites, and logs contain no
// query strings.
package invitation
