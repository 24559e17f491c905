// Package oauthclients serves the management of a workspace's OAuth clients.
//
//	POST   /v1/account/tenants/{tenantId}/oauth-clients                     register (spec 4.2): 201
//	GET    /v1/account/tenants/{tenantId}/oauth-clients                     list
//	GET    /v1/account/tenants/{tenantId}/oauth-clients/{clientId}          read
//	DELETE /v1/account/tenants/{tenantId}/oauth-clients/{clientId}          delete; revokes its grants: 204
//	POST   /v1/account/tenants/{tenantId}/oauth-clients/{clientId}/secret   replace the secret
//
// Each call needs account:api:access in the workspace. The secret is only in the response to the call that created it.
// One credential may have 64 requests in flight, of which 8 are handled at once. Further requests get a 429 (contract,
// section 6).
package oauthclients
