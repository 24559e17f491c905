// Package consent describes what a client requests, what the user can grant, and what the consent page showed when the
// user approved.
package consent

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/seal"
)

// A RequestIdentity identifies an authorization request in one session. Requests with the same identity are one
// request, which has one approval (contract, section 4): in each workspace, the id of the grant is derived from the
// identity.
type RequestIdentity struct {
	SignInID    uuid.UUID `json:"s"`
	ClientID    uuid.UUID `json:"c"`
	RedirectURI string    `json:"r"` // as sent, which equals the registered one byte for byte
	State       []byte    `json:"t"` // byte for byte, so that it survives if it is not valid UTF-8
	Challenge   string    `json:"h"` // PKCE S256 challenge, or ""
}

// A Request is an authorization request that has passed every check of its form (contract, section 4). Its SignInID is
// zero until the user is known.
type Request struct {
	RequestIdentity
	Client      client.Client
	Permissions perm.Set
	Resource    string // resource indicator of the access token
}

// A Ticket is what a page about a request showed, and to which user: the consent page, or the page on which a user
// selects the workspace for a client that belongs to none. The user's answer submits it, and nothing else in the answer
// is trusted but the decision and the selected workspace.
type Ticket struct {
	RequestIdentity
	UserID      uuid.UUID `json:"u"`
	Permissions perm.Set  `json:"p"` // those to be granted; as requested while the workspace is not selected
	Resource    string    `json:"a"`
	Request     []byte    `json:"o"` // local path of the original request, to return to
	Issued      time.Time `json:"i"`
	GrantID     uuid.UUID `json:"g,omitzero"` // for a process of the previous release; see Approval.Next
	WorkspaceID uuid.UUID `json:"w,omitzero"` // zero while it is not selected
}

// AuthorizationRequest returns the request again, with the client as it is now.
func (t Ticket) AuthorizationRequest(c client.Client) Request {
	return Request{t.RequestIdentity, c.At(t.Resource), t.Permissions, t.Resource}
}

// TicketLife is how long a page may stay open before the user decides.
const TicketLife = time.Hour

// ErrStale reports that a ticket is genuine but too old.
var ErrStale = errors.New("the consent page was open for too long")

// Tickets seals and opens the tickets of one kind of page. It is safe for concurrent use.
type Tickets struct{ box *seal.Box }

// NewTickets derives the keys of both kinds of tickets from the master keys: of consent pages, and of pages on which a
// user selects a workspace. A ticket of one kind does not open as the other.
func NewTickets(keys seal.Keys) (consents, choices Tickets, err error) {
	var err1, err2 error
	consents.box, err1 = seal.NewBox(keys, "consent ticket")
	choices.box, err2 = seal.NewBox(keys, "choice of a workspace")
	if err := errors.Join(err1, err2); err != nil {
		return Tickets{}, Tickets{}, fmt.Errorf("consent tickets: %w", err)
	}
	return consents, choices, nil
}

// Seal returns the ticket as text for a form.
func (t Tickets) Seal(ticket Ticket) (string, error) {
	text, err := json.Marshal(ticket)
	if err != nil {
		return "", fmt.Errorf("consent ticket: %w", err)
	}
	return t.box.Seal(text), nil
}

// Open returns the ticket in text. It returns ErrStale if the ticket is too old, and seal.ErrForeign if text is not a
// ticket.
func (t Tickets) Open(text string, now time.Time) (ticket Ticket, err error) {
	content, err := t.box.Open(text)
	if err != nil {
		return Ticket{}, err
	}
	if json.Unmarshal(content, &ticket) != nil {
		return Ticket{}, seal.ErrForeign
	}
	if now.Sub(ticket.Issued) > TicketLife {
		return ticket, ErrStale
	}
	return ticket, nil
}

// maxApprovals limits how often a request can be approved again after its approval was denied.
const maxApprovals = 8

// keys returns the keys that the grant of the request can have in a workspace, in turn. A grant that has ended stays
// ended (G7), so the approval after a denial has the next key.
func (r RequestIdentity) keys(workspaceID uuid.UUID) []grant.Key {
	out := make([]grant.Key, maxApprovals)
	for turn := range out {
		content, _ := json.Marshal(struct { // cannot fail: no field has a type that JSON lacks
			RequestIdentity
			WorkspaceID uuid.UUID
			Turn        int
		}{r, workspaceID, turn})
		out[turn] = grant.Key{WorkspaceID: workspaceID, ID: uuid.NewHash(sha256.New(), r.SignInID, content, 8)}
	}
	return out
}

// Keys returns the keys that grants of the request can have in these workspaces.
func (r RequestIdentity) Keys(workspaces []uuid.UUID) []grant.Key {
	var out []grant.Key
	for _, id := range workspaces {
		out = append(out, r.keys(id)...)
	}
	return out
}

// An Approval is what the user has decided about a request so far: the grants that exist with one of its keys.
type Approval struct {
	Request    RequestIdentity
	Workspaces []uuid.UUID // to which the request may give access
	Grants     []grant.Grant
}

// Elsewhere returns the keys of the request in the other workspaces.
func (a Approval) Elsewhere(workspaceID uuid.UUID) []grant.Key {
	here := func(id uuid.UUID) bool { return id == workspaceID }
	return a.Request.Keys(slices.DeleteFunc(slices.Clone(a.Workspaces), here))
}

// Used reports whether a code of the request was redeemed.
func (a Approval) Used() bool {
	_, used := a.Redeemed()
	return used
}

// Redeemed returns the grant whose code was redeemed, and false if there is none.
func (a Approval) Redeemed() (grant.Grant, bool) {
	at := slices.IndexFunc(a.Grants, func(g grant.Grant) bool { return g.Generation > 0 })
	if at < 0 {
		return grant.Grant{}, false
	}
	return a.Grants[at], true
}

// Pending returns the grants whose code is unused: one, or none.
func (a Approval) Pending() []grant.Grant {
	return slices.DeleteFunc(slices.Clone(a.Grants), func(g grant.Grant) bool { return g.State != grant.Pending })
}

// In returns the grant with an unused code in a workspace, or nil.
func (a Approval) In(workspaceID uuid.UUID) *grant.Grant {
	for _, g := range a.Pending() {
		if g.WorkspaceID == workspaceID {
			return &g
		}
	}
	return nil
}

// Next returns the id of the grant that an approval in the workspace creates or changes. It returns false if the code
// was redeemed, or if too many approvals were denied.
func (a Approval) Next(workspaceID uuid.UUID) (uuid.UUID, bool) {
	for _, key := range a.Request.keys(workspaceID) {
		at := slices.IndexFunc(a.Grants, func(g grant.Grant) bool { return g.Key() == key })
		if at < 0 || a.Grants[at].State == grant.Pending {
			return key.ID, !a.Used()
		}
	}
	return uuid.Nil, false
}
