// Package authorize serves the authorization endpoint, where a user gives a client access.
//
//	GET  /oauth/authorize             Page     shows the sign-in page, the consent page, or an error page
//	POST /oauth/authorize             Answer   takes the decision and redirects to the client with a code
//	POST /oauth/authorize/workspace   Choose   takes the workspace for a client that belongs to none
//	                                           and shows the consent page
//
// Page checks, in this order (contract, section 4):
//
//	1 client and redirect URI                   engine.Identify             page, 400; no redirect before this
//	2 current user                              session                     sign-in page
//	3 remaining parameters                      engine.ParseAuthorization   redirect to the callback
//	4 membership, LLM integration, permissions  consent.Evaluate            page, 403
//	  connector policy of the workspace         consent.ApplyPolicy         page, 403
//	5 shows the consent page with a ticket that records its contents and the session
//
// A client with a metadata document belongs to no workspace. For such a client, the workspace page comes between
// 3 and 4, and Choose continues with 4 and 5.
//
// Answer trusts only the ticket and checks again what may have changed since: the client, the membership, the LLM
// integration, the permissions, the policy. It never grants more than was on the page.
package authorize
