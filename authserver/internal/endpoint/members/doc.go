// Package members serves the members and invitations of a workspace.
//
//	GET    /v1/account/tenants/{tenantId}/members                   list
//	PATCH  /v1/account/tenants/{tenantId}/members/{userId}          replace the permissions
//	DELETE /v1/account/tenants/{tenantId}/members/{userId}          remove; ends grants and tokens: 204
//	GET    /v1/account/tenants/{tenantId}/invitations               list
//	POST   /v1/account/tenants/{tenantId}/invitations               invite: 201
//	DELETE /v1/account/tenants/{tenantId}/invitations/{invitationId}  withdraw: 204
//
// Each call needs account:api:access in the workspace, a GET also account:read:members, and the others
// account:write:members. An invitation for an address with an open invitation replaces it. The link of an invitation is
// only in the response to the call that created it, and only if the deployment sends no e-mail. Package membership
// decides.
package members
