// Package settings holds what the pages of the settings have in common: the session, the key of the forms, the
// workspace, the frame, and audit events in words. Each page is a package below it, with its routes, its view and its
// link in the navigation.
//
//	GET /settings   303 to /settings/user
//
// Every form has a key that is sealed for the sign-in it was shown to (request.go): a form of another session is a 403.
// Pages of one workspace need a permission there (contract, section 7): account:read:members for the members, and
// account:api:access for the others.
package settings
