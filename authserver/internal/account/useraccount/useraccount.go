// Package useraccount changes the account of a user as a whole: its e-mail address, and its end.
//
//	deletion.go     Summary, Ended: what ends with an account
//	emailchange.go  the request to change an address, and its two links
//	service.go      Service
//
// Its invariants:
//
//	P1 A deleted account has no name, address, sign-in method, sign-in, membership, grant, token or open invitation.
//	   All of them end in one transaction, and nothing that was checked before it is written after it.
//	P2 The last member of a workspace who manages its members cannot delete the own account. An operator can.
//	P3 An address changes when a link to the old and a link to the new address were both confirmed by a POST. Each
//	   link works until then, for 24 hours, and each can stop the change.
//	P4 The response to a request does not tell whether a user has the new address.
//
// Callers: endpoint/settings/user, endpoint/emailchange, and admin for the operator's commands.
package useraccount
