package membership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/seal"
)

// Limits of the requests for access.
const (
	// RequestInterval is the minimum time between two requests of one user in one workspace.
	RequestInterval = 24 * time.Hour
	// RequestsKept is how long a request is stored and fills in the administrator's form.
	RequestsKept = 30 * 24 * time.Hour
	// MaxRequestsByNonMembers is the maximum number of requests of users who are not members, per workspace and
	// RequestInterval.
	MaxRequestsByNonMembers = 10
	// MaxRequestRecipients is the maximum number of mails that one request sends.
	MaxRequestRecipients = 20
	// MaxRequestsListed is the maximum number of open requests that a page lists.
	MaxRequestsListed = 100
	// TicketLife is how long a ticket is valid after its page was opened.
	TicketLife = 24 * time.Hour
)

// An AccessRequest is what a user asks for.
type AccessRequest struct {
	SignInID       uuid.UUID `json:"s"`
	UserID         uuid.UUID `json:"u"`
	WorkspaceID    uuid.UUID `json:"w"`
	Permissions    perm.Set  `json:"p,omitempty"` // missing permissions; a user who is no member also lacks the membership
	LLMIntegration bool      `json:"l,omitempty"` // the workspace's LLM integration is off
	Policy         bool      `json:"c,omitempty"` // the workspace's connector policy refuses the application
	Application    string    `json:"a,omitempty"` // the application that needs the access, or ""
	Back           []byte    `json:"b,omitempty"` // local path to return to; bytes, like consent.Ticket.Request
	Issued         time.Time `json:"i"`
}

// Decides returns the permission of the members who get the request.
func (r AccessRequest) Decides() perm.Permission {
	if r.Policy {
		return perm.AccountAPIAccess
	}
	return perm.AccountWriteMembers
}

// Needs returns the permissions that a member needs, besides Decides, to give the requested access.
func (r AccessRequest) Needs() perm.Set {
	if r.LLMIntegration {
		return perm.NewSet(perm.AccountAPIAccess) // for Settings → Assistants
	}
	return r.Permissions
}

// A Manager is a member who can give access.
type Manager struct {
	UserID      uuid.UUID
	Name, Email string
}

// An Outcome is the result of a request.
type Outcome string

// The outcomes.
const (
	RequestSent       Outcome = "sent"
	RequestSentBefore Outcome = "already sent" // R2
	TooManyRequests   Outcome = "too many"     // R2
	NoManager         Outcome = "no manager"   // no other member gets the mail
	AccessGiven       Outcome = "already given"
	NoMail            Outcome = "no mail"  // the deployment sends no mail
	RequesterUnproven Outcome = "unproven" // the mail would name an address that may not be the user's
)

// A SentRequest is a request that was sent, as the page of an administrator shows it.
type SentRequest struct {
	UserID      uuid.UUID
	Name, Email string
	Permissions perm.Set
	Application string
	At          time.Time
	Member      bool // the user is a member
}

// Managers reads who can give access; postgres.Store implements it.
type Managers interface {
	// Managers lists the enabled members with the permission that AccessRequest.Decides names, except the user who
	// asks. If any of them hold the permissions that AccessRequest.Needs names, it lists only these. With mailed, it
	// omits those who do not want the mail.
	Managers(ctx context.Context, q AccessRequest, mailed bool) ([]Manager, error)
}

// AccessOffers creates the forms by which users ask for access. It is safe for concurrent use.
type AccessOffers struct {
	store Managers
	mails bool
	box   *seal.Box
}

// NewAccessOffers derives the key of the tickets from the master keys. mails tells whether the deployment sends mail.
func NewAccessOffers(store Managers, mails bool, keys seal.Keys) (*AccessOffers, error) {
	box, err := seal.NewBox(keys, "access request")
	if err != nil {
		return nil, err
	}
	return &AccessOffers{store, mails, box}, nil
}

// An AccessOffer is what a page offers to a user who lacks access.
type AccessOffer struct {
	Ticket string    // for the form, or "" if the deployment sends no mail
	People []Manager // the managers to ask instead, if the user may see the members
	None   bool      // no other member can give the access, or get the mail
}

// Offer returns the offer for a request. held are the user's permissions in the workspace.
func (o *AccessOffers) Offer(ctx context.Context, q AccessRequest, held perm.Set) (AccessOffer, error) {
	if !o.mails && !held.Has(perm.AccountReadMembers) {
		return AccessOffer{}, nil
	}
	people, err := o.store.Managers(ctx, q, o.mails)
	switch {
	case err != nil:
		return AccessOffer{}, err
	case len(people) == 0:
		return AccessOffer{None: true}, nil
	case !o.mails:
		return AccessOffer{People: people}, nil
	}
	text, err := json.Marshal(q)
	if err != nil {
		return AccessOffer{}, fmt.Errorf("access request: %w", err)
	}
	return AccessOffer{Ticket: o.box.Seal(text)}, nil
}

// ErrTicket reports that a ticket is not valid for the sign-in.
var ErrTicket = errors.New("the ticket of the access request is not valid")

// Open returns the request in a ticket of this sign-in, or ErrTicket.
func (o *AccessOffers) Open(ticket string, signInID uuid.UUID, now time.Time) (AccessRequest, error) {
	content, err := o.box.Open(ticket)
	if err != nil {
		return AccessRequest{}, ErrTicket
	}
	var q AccessRequest
	if json.Unmarshal(content, &q) != nil || q.SignInID != signInID || now.Sub(q.Issued) > TicketLife {
		return AccessRequest{}, ErrTicket
	}
	return q, nil
}

// Requests stores requests for access, like Members.
type Requests interface {
	// AccessRequest returns the open request of a user for permissions that the user does not have, or ErrAnswered.
	AccessRequest(ctx context.Context, workspaceID, user uuid.UUID) (SentRequest, error)
	DeclineAccess(ctx context.Context, workspaceID uuid.UUID, q SentRequest, event audit.Event) error
}

// Approve gives the access that a user asked for at that time: to a member the permissions, and to another user an
// invitation with them, which it returns. It returns ErrAnswered if the request is no longer open, and the errors of
// ChangePermissions and InviteAll.
func (s *Service) Approve(ctx context.Context, by Actor, user uuid.UUID, asked time.Time) (*Sent, error) {
	q, err := s.request(ctx, by, user, asked)
	if err != nil {
		return nil, err
	}
	if !q.Member {
		sent, err := s.InviteAll(ctx, by, Batch{
			Emails:      []string{q.Email},
			Permissions: q.Permissions,
			Replace:     []string{q.Email},
			Form:        uuid.Must(uuid.NewV7()),
			answers:     &q,
		})
		if err != nil {
			return nil, err
		}
		return &sent[0], nil
	}
	member, err := s.Store.WorkspaceMember(ctx, by.WorkspaceID, user)
	if err != nil {
		return nil, err
	}
	held := member.Permissions
	_, err = s.change(ctx, by, member, Change{
		WorkspaceID: by.WorkspaceID,
		UserID:      user,
		Permissions: held.Union(q.Permissions),
		Seen:        &held,
		Answers:     &q,
	})
	return nil, err
}

// DeclineRequest ends the request of a user that was made at that time, or returns ErrAnswered.
func (s *Service) DeclineRequest(ctx context.Context, by Actor, user uuid.UUID, asked time.Time) error {
	q, err := s.request(ctx, by, user, asked)
	if err != nil {
		return err
	}
	event := by.Event(audit.AccessDeclined, "user:"+user.String(),
		map[string]any{"permissions": q.Permissions.Strings()}, managing(nil))
	event.UserID = &user
	return s.Store.DeclineAccess(ctx, by.WorkspaceID, q, event)
}

func (s *Service) request(ctx context.Context, by Actor, user uuid.UUID, asked time.Time) (SentRequest, error) {
	q, err := s.Store.AccessRequest(ctx, by.WorkspaceID, user)
	if err == nil && !q.At.Equal(asked) {
		err = ErrAnswered
	}
	return q, err
}
