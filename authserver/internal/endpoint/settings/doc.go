// Package settings serves the pages on which users see and change their own access.
//
//	GET  /settings                              Home        303 to /settings/user
//	GET  /settings/user                         User        name, e-mail address, workspaces
//	GET  /settings/developers?tenant=           Developers  tokens and applications of one workspace
//	POST /settings/developers/tokens            MakeToken   the page, with the token's value only this time
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
//	GET  /settings/audit?tenant=&before=        Audit       the audit log of one workspace
//	GET  /settings/audit.jsonl?tenant=          Export      all of its events, one JSON object a line
//
// Every form has a key that is sealed for the sign-in it was shown to (request.go): a form of another session is a 403.
// Creating a credential needs an authentication within the last 10 minutes. Users with a password enter it in the form;
// other users authenticate at /login/again. Developers, Connectors and Audit need account:api:access in the workspace
// (contract, section 7).
package settings
