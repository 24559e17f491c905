package useraccount

import "errors"

// A Proof says what proved that an address is its user's: that the person with the mailbox has the account. It is
// stored in account.users with the time. An account without one may have been created by another person, for example by
// an inviter who opened the link of an invitation that the deployment did not mail.
//
// An account is proven when it is created, or in a transaction that first ends everything that gives access to it (a
// Takeover). Two proofs end nothing: ByEmailChange, which a signed-in user requests, and the word of an operator who
// knows the user.
type Proof string

// The proofs.
const (
	ByOperator      Proof = "operator"       // admin users add, admin users confirm-email
	ByInvitation    Proof = "invitation"     // the account was created with the mailed link of an invitation
	ByEmailChange   Proof = "email_change"   // the mailed links of a change of the address were opened
	ByReset         Proof = "reset"          // a password was set with a mailed link; a Takeover
	ByOperatorsLink Proof = "operators_link" // a password was set with an operator's link; a Takeover
	ByUpstream      Proof = "upstream"       // the identity provider has verified the address; a Takeover
)

// A Takeover is what ended when the address of an account was proven: the password, passkeys, linked accounts and the
// authenticator app, sign-ins, personal access tokens, grants, webhooks, links and sent invitations.
type Takeover struct {
	EndedCredentials
	Methods int // passkeys, linked accounts and the authenticator app
}

// ErrTakeover reports that a change would be a Takeover, and that the person has not confirmed it. Nothing was changed.
var ErrTakeover = errors.New("the address was never proven: the account would be taken over")
