// Package authorize answers: does this user give this application access?
//
//	GET  /oauth/authorize   Page     shows the sign-in page, the consent page, or why there is none
//	POST /oauth/authorize   Answer   takes the decision, and sends the user back with a code
//	POST /oauth/authorize/workspace   Choose   takes the workspace for a client that belongs to none, and shows the consent page
//
// Page asks, in this order (contract, section 4):
//
//	1 who asks, and where does the answer go?      engine.Identify    a page, 400; nothing is redirected before this
//	2 who is at the browser?                       session            the sign-in page
//	3 is the rest of the request right?            engine.Ask         redirected to the callback
//	4 a member? LLM integration? permissions?      consent.Weigh      a page, 403
//	  does the workspace's policy allow it?        consent.Limit      a page, 403
//	5 the consent page, with a ticket that says what is on it and whose session it is
//
// A client that is known by its metadata document belongs to no workspace: for it, the page that asks which workspace
// stands between 3 and 4, and Choose goes on with 4 and 5.
//
// Answer believes the ticket alone, and asks again what may have changed meanwhile: the client, the membership, the LLM
// integration, the permissions, the policy. It never gives more than was on the page.
package authorize
