// Package pat defines personal access tokens.
//
// A user creates one in the settings for one workspace, with a name, one of three lifetimes, and permissions that the
// user holds there (spec 2.1). Its value is shown once; only its SHA-256 is stored. At each request it allows the
// permissions that it was given and that its user holds at that moment (account.standings).
//
// Callers: endpoint/settings (create, list, revoke, replace). A user needs only to be signed in to list and revoke
// tokens: a user who may no longer create tokens must still be able to revoke them. The resource API reads tokens
// through shared/contract/standing.
package pat

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/displayname"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// A Token is a personal access token without its value.
type Token struct {
	ID          uuid.UUID
	UserID      uuid.UUID
	WorkspaceID uuid.UUID
	Name        string
	Permissions perm.Set
	Created     time.Time // set by the store
	Expires     time.Time
	RevokedAt   *time.Time
	Reason      string // why it was revoked
	LastUsed    *time.Time
	ReplacesID  *uuid.UUID // the token that this one replaces; it is revoked when this one is first used
}

// A TokenInWorkspace is a token with the name of its workspace.
type TokenInWorkspace struct {
	Token
	Workspace string
}

// Active reports whether the token is neither revoked nor expired.
func (t Token) Active(now time.Time) bool { return t.RevokedAt == nil && now.Before(t.Expires) }

// Days returns the lifetime that the token was created with, in days.
func (t Token) Days() int { return int((t.Expires.Sub(t.Created) + time.Hour) / (24 * time.Hour)) }

// Reasons for which a token was revoked.
const (
	ByUser   = "revoked_by_user"
	Replaced = "replaced" // by the first use of the token that replaces it
	// ByHolder: its value was sent to the revocation endpoint, by an application or by a person who found it.
	ByHolder = "revoked_by_holder"
)

// Lifetimes returns the selectable lifetimes in days (spec 2.1).
func Lifetimes() []int { return []int{7, 30, 90} }

// A Request is a request for a new token.
type Request struct {
	Name        string
	Days        int
	Permissions []string
}

// A Refusal says which field of a request is invalid, and why.
type Refusal struct{ Field, Message string }

func (r *Refusal) Error() string { return r.Message }

// Accept returns the requested token, without identifier, user and workspace, or a *Refusal. held is what the user
// holds in the workspace now.
func (r Request) Accept(held perm.Set, now time.Time) (Token, error) {
	if refusals := r.Refusals(held); len(refusals) > 0 {
		return Token{}, refusals[0]
	}
	return Token{
		Name:        strings.TrimSpace(r.Name),
		Permissions: perm.FromStrings(r.Permissions),
		Expires:     now.Add(time.Duration(r.Days) * 24 * time.Hour),
	}, nil
}

// Refusals returns a refusal for each invalid field, in the order of the form.
func (r Request) Refusals(held perm.Set) []*Refusal {
	var out []*Refusal
	if message := displayname.Check(strings.TrimSpace(r.Name), displayname.MaxLength); message != "" {
		out = append(out, &Refusal{"name", message})
	}
	if !slices.Contains(Lifetimes(), r.Days) {
		out = append(out, &Refusal{"days", "Choose 7, 30 or 90 days."})
	}
	switch wanted := perm.FromStrings(r.Permissions); {
	case len(wanted) == 0:
		out = append(out, &Refusal{"permissions", "Choose at least one permission."})
	case !held.HasAll(wanted):
		out = append(out, &Refusal{"permissions", "You can only choose permissions that you have in this workspace."})
	}
	return out
}
