// Package oauthclients answers: which applications may ask this workspace's users for access?
//
//	POST   /v1/account/tenants/{tenantId}/oauth-clients                     register (spec 4.2): 201
//	GET    /v1/account/tenants/{tenantId}/oauth-clients                     list
//	GET    /v1/account/tenants/{tenantId}/oauth-clients/{clientId}          read
//	DELETE /v1/account/tenants/{tenantId}/oauth-clients/{clientId}          delete; its grants are revoked: 204
//	POST   /v1/account/tenants/{tenantId}/oauth-clients/{clientId}/secret   replace the secret
//
// Each needs account:api:access in the workspace. The secret is in the answer of the call that made it, nowhere else.
// One credential has at most 64 requests in flight, of which 8 are worked on at once: more are 429 (contract, section
// 6).
package oauthclients
