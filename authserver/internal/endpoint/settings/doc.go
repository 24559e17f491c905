// Package settings answers: what does a user see and change about their own access?
//
//	GET  /settings                              Home        303 to /settings/user
//	GET  /settings/user                         User        name, e-mail address, workspaces
//	GET  /settings/developers?tenant=           Developers  tokens and applications of one workspace
//	POST /settings/developers/tokens            MakeToken   the page, with the value this once
//	POST /settings/developers/tokens/replace    ReplaceToken
//	POST /settings/developers/tokens/revoke     RevokeToken
//	POST /settings/developers/apps              RegisterApp
//	POST /settings/developers/apps/secret       ReplaceSecret
//	POST /settings/developers/apps/delete       DeleteApp
//	GET  /settings/connectors?tenant=           Connectors  policy and connection log of one workspace
//	POST /settings/connectors/policy            SetConnectorPolicy
//	GET  /settings/apps                         Apps        every grant of the user
//	POST /settings/apps/disconnect              Disconnect
//	GET  /settings/security                     Security    sign-ins, tokens of every workspace, recent events
//	POST /settings/security/tokens/revoke       RevokeAnyToken
//	POST /settings/security/sign-out            SignOut
//	POST /settings/security/sign-out-others     SignOutOthers
//	GET  /settings/audit?tenant=&before=        Audit       the log of one workspace
//	GET  /settings/audit.jsonl?tenant=          Export      the same, whole, one JSON object a line
//
// Every form carries a key that was sealed for the sign-in that saw it (request.go): a form of another session is 403.
// What makes a credential wants a new proof of who is there, where there was none within the last 10 minutes: the
// password, in the form itself; from whoever has none, at /login/again. Developers, Connectors and Audit need
// account:api:access in the workspace (contract, section 7).
package settings
