// Package useraccount changes the e-mail address of a user and deletes accounts.
//
//	P1 A deleted account has no name, address, sign-in method, sign-in, membership, grant, token or open invitation.
//	   All of them end in one transaction. A request that was authorized before the deletion writes nothing after it.
//	P2 The last member of a workspace who manages its members cannot delete their own account. An operator can.
//	P3 An address changes when the link to the old address and the link to the new one have both been confirmed by a
//	   POST. Each link is valid until then, for at most 24 hours, and each can stop the change.
//	P4 The response to a request does not tell whether a user has the new address.
//
// Callers: endpoint/settings, endpoint/signin, and admin for the operator's commands.
package useraccount

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

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

// A Workspace is a workspace that the user is a member of.
type Workspace struct {
	ID         uuid.UUID `json:"id"`
	Name       string    `json:"name"`
	LastHolder bool      `json:"lastHolder"` // no other enabled member has one of the user's permissions of account
}

// A Summary counts what ends with an account, and what stays.
type Summary struct {
	Workspaces    []Workspace `json:"workspaces"`
	Connections   int         `json:"connections"`   // active grants
	Tokens        int         `json:"tokens"`        // active personal access tokens
	SignIns       int         `json:"signIns"`       // valid
	SignInMethods int         `json:"signInMethods"` // passkeys, linked accounts and the authenticator app
	Invitations   int         `json:"invitations"`   // open ones that the user sent
	Applications  int         `json:"applications"`  // registered by the user; they stay with their workspaces
}

// Unmanaged returns the workspaces in which a permission of account would be left without an enabled member.
func (s Summary) Unmanaged() (left []Workspace) {
	for _, w := range s.Workspaces {
		if w.LastHolder {
			left = append(left, w)
		}
	}
	return left
}

// Ended describes what ended with an account.
type Ended struct {
	Summary
	Grants []EndedGrant // revoked in Postgres; the caller revokes them in Redis
	More   bool         // there are more, which are refused at once and revoked in the background
}

// EndedCredentials are the grants and personal access tokens that ended.
type EndedCredentials struct {
	Grants []EndedGrant // revoked in Postgres; the caller revokes them in Redis
	Tokens int          // revoked
	More   bool         // there are more, which are refused at once and revoked in the background
}

// An EndedGrant is a grant that ended with an account.
type EndedGrant struct {
	ID   uuid.UUID
	Ends time.Time
}

// A Store deletes accounts and stores changes of addresses. Its errors are Errors, membership.ErrLastHolder and
// audit.ErrNotAuthorized, or wrap store.ErrUnavailable.
type Store interface {
	// DeletionSummary returns what would end if the account was deleted.
	DeletionSummary(ctx context.Context, user uuid.UUID) (Summary, error)
	// DeleteUser deletes an account and records the event, if the event's authorization is still valid (P1, P2).
	DeleteUser(ctx context.Context, user uuid.UUID, event audit.Event) (Ended, error)

	// BeginEmailChange stores a request, replaces an open one, and mails both addresses. If another user has the new
	// address, the mail to it has no link; nothing else differs (P4).
	BeginEmailChange(ctx context.Context, r EmailRequest, event audit.Event) error
	// OpenEmailChange returns the open request of a user, or nil.
	OpenEmailChange(ctx context.Context, user uuid.UUID) (*EmailChange, error)
	// EmailChangeLink returns the request of a link, or ErrLinkInvalid.
	EmailChangeLink(ctx context.Context, token credential.Secret) (EmailChange, error)
	// ConfirmEmailChange confirms a link, and returns true if both are confirmed and the address was changed.
	ConfirmEmailChange(ctx context.Context, token credential.Secret, event audit.Event) (EmailChange, bool, error)
	// StopEmailChange ends a request with one of its links.
	StopEmailChange(ctx context.Context, token credential.Secret, event audit.Event) error
}

// A Service changes accounts. It is safe for concurrent use.
type Service struct {
	Store
	// PropagateRevocation propagates the ends of grants to Redis.
	PropagateRevocation func(ctx context.Context, ended []EndedGrant)
	Random              io.Reader
}

// Delete deletes the account of a user at the user's request. It returns membership.ErrLastHolder.
func (s *Service) Delete(ctx context.Context, user uuid.UUID, event audit.Event) error {
	ended, err := s.DeleteUser(ctx, user, event)
	if err != nil {
		return err
	}
	s.PropagateRevocation(ctx, ended.Grants)
	return nil
}

// EmailChangeLife is how long the two links of a change of address are valid.
const EmailChangeLife = 24 * time.Hour

// Maximum numbers of requests per day. Each request sends a mail to an address that the user chose.
const (
	MaxEmailChanges          = 5 // by one user
	MaxEmailChangesToAddress = 3 // users who request a change to one address
)

// Errors of a change of address. The address was not changed.
var (
	ErrLinkInvalid    = errors.New("the link to change an address is not valid")
	ErrEmailTaken     = errors.New("another user has the address")
	ErrTooManyChanges = errors.New("too many changes of an address were requested")
)

// An EmailRequest is a request to change an address.
type EmailRequest struct {
	ID       uuid.UUID
	UserID   uuid.UUID
	Email    string            // the new address, in lower case
	OldToken credential.Secret // of the link to the old address
	NewToken credential.Secret // of the link to the new address
	Device   string
	Network  string
}

// An EmailChange is an open request as shown on its pages.
type EmailChange struct {
	Old, New     string // addresses
	ToNew        bool   // the link was sent to the new address
	OldConfirmed bool
	NewConfirmed bool
	Expires      time.Time
}

// Confirmed reports whether the link was confirmed already.
func (e EmailChange) Confirmed() bool {
	return e.ToNew && e.NewConfirmed || !e.ToNew && e.OldConfirmed
}

// RequestEmailChange sends a link to the user's address and one to the new address. It returns ErrTooManyChanges.
func (s *Service) RequestEmailChange(ctx context.Context, r EmailRequest, event audit.Event) error {
	var err error
	if r.OldToken, err = credential.EmailChange.New(s.Random); err == nil {
		r.NewToken, err = credential.EmailChange.New(s.Random)
	}
	if err != nil {
		return err
	}
	return s.BeginEmailChange(ctx, r, event)
}
