package e2e

import (
	"net/http"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Spec 3 and 5.2, contract section 3: "A superseded refresh token: 400 invalid_grant, and the grant is revoked, at
// once, for refresh and access tokens alike."

func TestRefresh_SupersededTokenRevokesGrant(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner)
	for name, c := range map[string]struct{ generations, replayed int }{
		"the one before": {1, 0}, "the first of six": {5, 0}, "one in the middle": {5, 3},
	} {
		t.Run(name, func(t *testing.T) {
			connector := ws.Connector(t, harness.ReadProgrammes)
			sibling := connector.Connect(t, owner)
			line := []harness.Tokens{connector.Connect(t, owner)}
			for range c.generations {
				line = append(line, connector.Refresh(t, line[len(line)-1].RefreshToken).Tokens(t))
			}
			connector.Refresh(t, line[c.replayed].RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
			connector.WantsRevoked(t, line...)
			connector.WantsWorking(t, sibling) // another grant of the same user and application
		})
	}
}

// "That holds with a wrong resource too, and comes before the checks of membership and LLM integration"
func TestRefresh_ReplayIsDetectedFirst(t *testing.T) {
	t.Parallel()
	p := enter(t)
	for name, c := range map[string]struct {
		away, back func(*testing.T, harness.TestWorkspace)
		resource   string
	}{
		"wrong resource": {resource: p.BaseURL + "/mcp"},
		"no member": {
			away: func(t *testing.T, o harness.TestWorkspace) { p.Database.Leave(t, o.Workspace, o.Owner) },
			back: func(t *testing.T, o harness.TestWorkspace) {
				p.Database.Join(t, o.Workspace, o.Owner, harness.Everything()...)
			},
		},
		"no permission": {
			away: func(t *testing.T, o harness.TestWorkspace) { p.Database.Permit(t, o.Workspace, o.Owner) },
			back: func(t *testing.T, o harness.TestWorkspace) {
				p.Database.Permit(t, o.Workspace, o.Owner, harness.Everything()...)
			},
		},
		"LLM integration off": {
			away: func(t *testing.T, o harness.TestWorkspace) { p.Database.SetLLM(t, o.Workspace, false) },
			back: func(t *testing.T, o harness.TestWorkspace) { p.Database.SetLLM(t, o.Workspace, true) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			ws := p.NewWorkspace(t)
			connector := ws.Connector(t, harness.ReadProgrammes)
			old := connector.Connect(t, p.Person(t, ws.Owner))
			current := connector.Refresh(t, old.RefreshToken).Tokens(t)
			form := connector.RefreshForm(old.RefreshToken)
			if c.resource != "" {
				form.Set("resource", c.resource)
			}
			if c.away != nil {
				c.away(t, ws)
			}
			connector.Post(t, form).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
			if c.back != nil {
				c.back(t, ws)
			}
			connector.WantsRevoked(t, current)
		})
	}
}

// "A token that was never issued (forged, cut, from another client) is 400 and revokes nothing."
func TestRefresh_UnknownTokenRevokesNothing(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner)
	connector, other := ws.Connector(t, harness.ReadProgrammes), ws.Connector(t, harness.ReadProgrammes)
	old := connector.Connect(t, owner)
	current := connector.Refresh(t, old.RefreshToken).Tokens(t)
	others := other.Connect(t, owner)
	for _, wrong := range misspellings(old.RefreshToken) {
		connector.Refresh(t, wrong).WantsFlat(t, http.StatusBadRequest, "invalid_grant", "invalid_request")
	}
	// Another client presents the tokens, superseded and current.
	for _, stolen := range []string{old.RefreshToken, current.RefreshToken} {
		other.Refresh(t, stolen).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	}
	connector.WantsWorking(t, current)
	other.WantsWorking(t, others)
}

// "Revoked is final" (grants): every further attempt gets the same error.
func TestRefresh_RevokedGrantStaysRevoked(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner)
	connector := ws.Connector(t, harness.ReadProgrammes)
	first := connector.Connect(t, owner)
	second := connector.Refresh(t, first.RefreshToken).Tokens(t)
	connector.Refresh(t, first.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	for range 3 {
		connector.WantsRevoked(t, first, second)
	}
	connector.WantsWorking(t, connector.Connect(t, owner)) // a new consent creates a new grant
}
