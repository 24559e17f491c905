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

// Deletions deletes accounts. Its errors are membership.ErrLastHolder and audit.ErrNotAuthorized, or wrap
// store.ErrUnavailable.
type Deletions interface {
	DeletionSummary(ctx context.Context, user uuid.UUID) (Summary, error)
	// DeleteUser deletes an account and records the event, if the event's authorization is still valid (P1, P2).
	DeleteUser(ctx context.Context, user uuid.UUID, event audit.Event) (Ended, error)
}

// Deps are the dependencies of a Service.
type Deps struct {
	Store interface {
		Deletions
		EmailChanges
	}
	// PropagateRevocation propagates the end of a grant to Redis.
	PropagateRevocation func(ctx context.Context, id uuid.UUID, ends time.Time)
	Random              io.Reader
}

// A Service changes accounts. It is safe for concurrent use.
type Service struct{ Deps }

// New returns a Service.
func New(d Deps) *Service { return &Service{d} }

// Summary returns what would end if the account was deleted.
func (s *Service) Summary(ctx context.Context, user uuid.UUID) (Summary, error) {
	return s.Store.DeletionSummary(ctx, user)
}

// Delete deletes the account of a user at the user's request. It returns membership.ErrLastHolder.
func (s *Service) Delete(ctx context.Context, user uuid.UUID, event audit.Event) error {
	ended, err := s.Store.DeleteUser(ctx, user, event)
	if err != nil {
		return err
	}
	for _, g := range ended.Grants {
		s.PropagateRevocation(ctx, g.ID, g.Ends)
	}
	return nil
}
