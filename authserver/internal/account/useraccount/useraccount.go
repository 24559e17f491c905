// Package useraccount changes the account of a user as a whole: its e-mail address, and its end.
//
//	deletion.go  Summary, Ended: what ends with an account
//	service.go   Service
//
// Its invariants:
//
//	P1 A deleted account has no name, address, sign-in method, sign-in, membership, grant, token or open invitation.
//	   All of them end in one transaction, and nothing that was checked before it is written after it.
//	P2 The last member of a workspace who manages its members cannot delete the own account. An operator can.
//
// Callers: endpoint/settings/user, and admin for the operator's commands.
package useraccount
