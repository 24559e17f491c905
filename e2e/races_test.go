package e2e

import (
	"net/http"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Contract, section 3, with concurrent requests: exactly one wins. All others are replays, so the grant is revoked
// afterwards, and no other grant of the same user and application. The races of e2e/torture run on two processes, with
// more racers and rounds.
func TestRaces_OneWinnerAndGrantRevoked(t *testing.T) {
	p, ws := inWorkspace(t)
	owner := p.Person(t, ws.Owner)
	connector, app := ws.Connector(t, harness.ReadProgrammes), ws.Confidential(t, "", harness.ReadProgrammes)
	sibling, long := connector.Connect(t, owner), app.Connect(t, owner)
	race := func(name string, racers int, send func() harness.Answer) harness.Tokens {
		t.Helper()
		var winners []harness.Answer
		for _, answer := range harness.Concurrently(racers, func(int) harness.Answer { return send() }) {
			if answer.Status == http.StatusOK {
				winners = append(winners, answer)
			} else {
				answer.WantsFlat(t, http.StatusBadRequest, "invalid_grant")
			}
		}
		if len(winners) != 1 {
			t.Fatalf("%s: %d of %d requests won", name, len(winners), racers)
		}
		return winners[0].Tokens(t)
	}
	for range 5 {
		tokens := connector.Connect(t, owner)
		won := race("refresh", 8, func() harness.Answer { return connector.Refresh(t, tokens.RefreshToken) })
		connector.WantsRevoked(t, won, tokens)
		body := app.Body(app.Code(t, owner))
		won = race("confidential code", 4, func() harness.Answer { return app.Exchange(t, body) })
		p.In(ws.Workspace, won.AccessToken).Get(t, programmes).
			WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	}
	connector.WantsWorking(t, sibling)
	p.In(ws.Workspace, long.AccessToken).Get(t, programmes).Wants(t, http.StatusOK)
}

// "A superseded refresh token: 400 invalid_grant, and the grant is revoked, at once, for refresh and access tokens
// alike."
func TestRefresh_SupersededTokenRevokesGrant(t *testing.T) {
	p, ws := inWorkspace(t)
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
