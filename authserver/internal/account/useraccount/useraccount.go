// Package useraccount changes the e-mail address of a user and deletes accounts.
//
//	deletion.go     Summary, Ended: what ends with an account
//	emailchange.go  the request to change an address, and its two links
//	service.go      Service
//
// Its invariants:
//
//	P1 A deleted account has no name, address, sign-in method, sign-in, membership, grant, token or open invitation.
//	   All of them end in one transaction. A request that was authorized before the deletion writes nothing after it.
//	P2 The last member of a workspace who manages its members cannot delete their own account. An operator can.
//	P3 An address changes when the link to the old address and the link to the new one have both been confirmed by a
//	   POST. Each link is valid until then, for at most 24 hours, and each can stop the change.
//	P4 The response to a request does not tell whether a user has the new address.
//
// Callers: endpoint/settings/user, endpoint/signin, and admin for the operator's commands.
package useraccount
