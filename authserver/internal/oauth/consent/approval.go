package consent

import (
	"crypto/sha256"
	"encoding/json"
	"slices"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

// A RequestIdentity identifies an authorization request in one session. Requests with the same identity are one
// request, which has one approval (contract, section 4): in each workspace, the id of the grant is derived from the
// identity.
type RequestIdentity struct {
	SignInID    uuid.UUID `json:"s"`
	ClientID    uuid.UUID `json:"c"`
	RedirectURI string    `json:"r"`
	State       []byte    `json:"t"`
	Challenge   string    `json:"h"`
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
	return slices.ContainsFunc(a.Grants, func(g grant.Grant) bool { return g.Generation > 0 })
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
