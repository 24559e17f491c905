// Package membership defines who is in a workspace, and how members and invitations change.
//
//	M1 A caller gives only permissions that the caller and the caller's credential hold in the workspace at that
//	   moment.
//	M2 The last enabled member with one of the permissions of account can neither be removed nor lowered in it, nor
//	   leave: no member could give it back.
//	M3 The end of a membership ends the user's grants and personal access tokens in the workspace, and the invitations
//	   that the user sent, in one transaction.
//	M4 An invitation is accepted at most once, within 7 days, by the user with its address, and only while its inviter
//	   could still send it.
//	M5 Invitations within 24 hours are limited per user, per workspace, and per user and address. The number of users
//	   who invite one address is limited, in one workspace and in all. One user cannot exhaust the limit of an address
//	   for others, and one workspace cannot exhaust the limits of another.
//	M6 A user whose address was never proven gets nothing more: neither a membership by an invitation nor another
//	   permission, from a member or an operator. Another person may have the account.
//
// Taking permissions away needs account:write:members alone: a member who leaves an organisation can be removed by each
// administrator, also by one who holds less.
//
// Callers: endpoint/members (API), endpoint/settings/members (pages), endpoint/signin.
package membership

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/perm"
)

// A Member is a user with a membership of one workspace.
type Member struct {
	ListedMember
	Since       time.Time
	LastSeen    *time.Time // at a browser, in any workspace; nil if never
	Connections int        // active grants in the workspace
	Tokens      int        // active personal access tokens in the workspace
	Proven      bool       // the address is the user's (useraccount.Proof); if not, the member gets no more permissions
}

// A ListedMember is the part of a Member that is read for all members of a workspace, to sort, search and count them.
type ListedMember struct {
	UserID       uuid.UUID
	Name         string
	Email        string
	Permissions  perm.Set
	Disabled     bool
	SecondFactor bool // the user has a passkey or an authenticator app
}

// UserIDs returns the identifiers of the members.
func UserIDs(members []ListedMember) []uuid.UUID {
	ids := make([]uuid.UUID, 0, len(members))
	for _, m := range members {
		ids = append(ids, m.UserID)
	}
	return ids
}

// An Invitation is an invitation that was neither answered nor withdrawn.
type Invitation struct {
	ID          uuid.UUID
	WorkspaceID uuid.UUID
	Email       string // lower case
	Permissions perm.Set
	InviterID   uuid.UUID
	Inviter     string // name
	Created     time.Time
	Expires     time.Time
}

// Life is how long an invitation can be accepted (contract, section 7). The store's clock decides.
const Life = 7 * 24 * time.Hour

// Expired reports whether the invitation can no longer be accepted.
func (i Invitation) Expired(now time.Time) bool { return !now.Before(i.Expires) }

// An Offer is an invitation as the invited person sees it.
type Offer struct {
	Invitation
	Workspace    string
	Organisation string
	HasAccount   bool // a user has the address
	Mailed       bool // the link was mailed; otherwise its inviter has it, who must not learn HasAccount
}

// A Removal is what ended with a membership.
type Removal struct {
	Grants []EndedGrant
	Tokens int
	More   bool // there are more, which are refused at once and revoked in the background
}

// An EndedGrant is a grant that ended with a membership.
type EndedGrant struct {
	ID   uuid.UUID
	Ends time.Time
}

// Errors of the rules. Nothing was changed.
var (
	ErrNoMember       = errors.New("no such member in this workspace")
	ErrMember         = errors.New("the user is a member already")
	ErrLastHolder     = errors.New("the last member with a permission of account")
	ErrChanged        = errors.New("the permissions changed since they were read")
	ErrNoInvitation   = errors.New("no such open invitation")
	ErrOtherAddress   = errors.New("the invitation is for another address")
	ErrUnproven       = errors.New("the address was never proven to be the user's")
	ErrInviter        = errors.New("the inviter can no longer give these permissions")
	ErrAccountExists  = errors.New("a user has the address of the invitation")
	ErrPasskeyExists  = errors.New("the passkey belongs to another user")
	ErrTooManyInvited = errors.New("the workspace has too many open invitations")
	ErrInvited        = errors.New("the address has an open invitation")
	ErrSent           = errors.New("the invitation was already sent")
)

// Errors returns the errors of the rules.
func Errors() []error {
	return []error{
		ErrNoMember, ErrMember, ErrLastHolder, ErrChanged, ErrNoInvitation, ErrOtherAddress, ErrUnproven,
		ErrInviter, ErrAccountExists, ErrPasskeyExists, ErrTooManyInvited, ErrInvited, ErrSent,
	}
}

// A Refusal says which field of a request is invalid, and why.
type Refusal struct{ Field, Message string }

func (r *Refusal) Error() string { return r.Message }

// A NotHeld lists permissions that the caller wants to give and does not hold (M1).
type NotHeld struct{ Missing perm.Set }

func (e *NotHeld) Error() string { return "permissions not held: " + e.Missing.Scope() }
