package gate

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/standing"
)

// A Credential is a valid credential with the workspace that it is for.
type Credential struct {
	Kind        string // as named by package standing
	User        uuid.UUID
	WorkspaceID uuid.UUID
	Usable      bool      // it works in its workspace now
	Permissions perm.Set  // what it may do there now; none unless Usable
	ExpiresAt   time.Time // of the access token, not of its grant
}

// A CredentialPlan is how a route continues that is about the credential alone.
type CredentialPlan struct {
	// ReadStanding reads the standing, and data for Serve in the same round trip.
	ReadStanding func(context.Context, standing.Query) (standing.Standing, error)
	// Serve writes the response.
	Serve func(w http.ResponseWriter, r *http.Request, c Credential) error
}

// GuardCredential serves requests that act in no workspace. They need a valid credential and nothing else. prepare
// parses the request; its error is returned after the credential was checked.
func (g *Gate) GuardCredential(prepare func(r *http.Request) (CredentialPlan, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.serveCredential(w, r, prepare); err != nil {
			g.Refuse(w, r, err)
		}
	})
}

func (g *Gate) serveCredential(
	w http.ResponseWriter, r *http.Request, prepare func(r *http.Request) (CredentialPlan, error),
) (err error) {
	held, err := g.identify(r)
	if err != nil {
		return err
	}
	turn, err := g.bounds.requests.Enter(r.Context(), w.Header(), held.key())
	if err != nil {
		return err
	}
	defer func() { endTurn(turn, err) }()
	plan, planErr := prepare(r)
	s, err := g.readStanding(r.Context(), held, uuid.Nil, "", Plan{ReadStanding: plan.ReadStanding})
	if err != nil {
		return err
	}
	if s.Replaces {
		if err := g.standings.EndReplaced(r.Context(), s.CredentialID); err != nil {
			return err
		}
	}
	g.recordUse(s)
	noteCaller(r.Context(), s)
	if planErr != nil {
		return planErr
	}
	return plan.Serve(w, r, held.credential(s))
}

// credential returns the credential with what it may do now.
func (p presented) credential(s standing.Standing) Credential {
	c := Credential{
		Kind:        s.Kind,
		User:        s.UserID,
		WorkspaceID: s.CredentialWorkspace,
		Usable:      s.Usable(),
		ExpiresAt:   s.EndsAt,
	}
	if p.claims != nil && p.claims.Expires.Before(c.ExpiresAt) {
		c.ExpiresAt = p.claims.Expires
	}
	if c.Usable {
		c.Permissions = p.granted(s).Intersect(s.MemberPermissions)
	}
	return c
}
