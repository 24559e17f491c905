// Package accessrequest lets a user ask the administrators of a workspace for access that the user lacks.
//
//	R1 A user can ask only for access that a page of this server reported as missing: the form contains a sealed
//	   ticket that is bound to the sign-in. Pages offer the form for workspaces of the user, and for the workspace
//	   that a valid authorization request names. So a request does not reveal whether a workspace exists.
//	R2 A user sends at most one request per workspace and day. All users who are not members together send at most
//	   MaxByNonMembers per workspace and day, so that they cannot flood the administrators. Members have no common
//	   limit.
//	R3 The request changes nothing else. The administrators get a link to a form that is filled in.
//
// endpoint/protocol/authorize and endpoint/settings show the form, endpoint/signin sends the request.
package accessrequest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/seal"
)

const (
	// Interval is the minimum time between two requests of one user in one workspace.
	Interval = 24 * time.Hour
	// Kept is how long a request is stored and fills in the administrator's form.
	Kept = 30 * 24 * time.Hour
	// MaxByNonMembers is the maximum number of requests of users who are not members, per workspace and Interval.
	MaxByNonMembers = 10
	// MaxRecipients is the maximum number of mails that one request sends.
	MaxRecipients = 20
	// TicketLife is how long a ticket is valid after its page was opened.
	TicketLife = 24 * time.Hour
)

// A Request is what a user asks for.
type Request struct {
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
func (r Request) Decides() perm.Permission {
	if r.Policy {
		return perm.AccountAPIAccess
	}
	return perm.AccountWriteMembers
}

// Needs returns the permissions that a member needs, besides Decides, to give the requested access.
func (r Request) Needs() perm.Set {
	if r.LLMIntegration {
		return perm.NewSet(perm.AccountAPIAccess) // for Settings → Connectors
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
	Sent         Outcome = "sent"
	AlreadySent  Outcome = "already sent" // R2
	TooMany      Outcome = "too many"     // R2
	NoManager    Outcome = "no manager"   // no other member gets the mail
	AlreadyGiven Outcome = "already given"
	NoMail       Outcome = "no mail"  // the deployment sends no mail
	Unproven     Outcome = "unproven" // the mail would name an address that may not be the user's
)

// A SentRequest is a request that was sent, as the page of an administrator shows it.
type SentRequest struct {
	UserID      uuid.UUID
	Name, Email string
	Permissions perm.Set
	Application string
	At          time.Time
}

// A Store reads who can give access; postgres.Store implements it.
type Store interface {
	// Managers lists the enabled members with the permission that Request.Decides names, except the user who asks. If
	// any of them hold the permissions that Request.Needs names, it lists only these. With mailed, it omits those who
	// do not want the mail.
	Managers(ctx context.Context, q Request, mailed bool) ([]Manager, error)
}

// Offers creates the forms of the pages. It is safe for concurrent use.
type Offers struct {
	store Store
	mails bool
	box   *seal.Box
}

// NewOffers derives the key of the tickets from the master keys. mails tells whether the deployment sends mail.
func NewOffers(store Store, mails bool, keys seal.Keys) (*Offers, error) {
	box, err := seal.NewBox(keys, "access request")
	if err != nil {
		return nil, err
	}
	return &Offers{store, mails, box}, nil
}

// An Offer is what a page offers to a user who lacks access.
type Offer struct {
	Ticket string    // for the form, or "" if the deployment sends no mail
	People []Manager // the managers to ask instead, if the user may see the members
	None   bool      // no other member can give the access, or get the mail
}

// Offer returns the offer for a request. held are the user's permissions in the workspace.
func (o *Offers) Offer(ctx context.Context, q Request, held perm.Set) (Offer, error) {
	if !o.mails && !held.Has(perm.AccountReadMembers) {
		return Offer{}, nil
	}
	people, err := o.store.Managers(ctx, q, o.mails)
	switch {
	case err != nil:
		return Offer{}, err
	case len(people) == 0:
		return Offer{None: true}, nil
	case !o.mails:
		return Offer{People: people}, nil
	}
	text, err := json.Marshal(q)
	if err != nil {
		return Offer{}, fmt.Errorf("access request: %w", err)
	}
	return Offer{Ticket: o.box.Seal(text)}, nil
}

// ErrTicket reports that a ticket is not valid for the sign-in.
var ErrTicket = errors.New("the ticket of the access request is not valid")

// Open returns the request in a ticket of this sign-in, or ErrTicket.
func (o *Offers) Open(ticket string, signInID uuid.UUID, now time.Time) (Request, error) {
	content, err := o.box.Open(ticket)
	if err != nil {
		return Request{}, ErrTicket
	}
	var q Request
	if json.Unmarshal(content, &q) != nil || q.SignInID != signInID || now.Sub(q.Issued) > TicketLife {
		return Request{}, ErrTicket
	}
	return q, nil
}
