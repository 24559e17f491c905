package e2e

import (
	"net/http"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Contract, section 3, with concurrent requests: exactly one wins. All others are replays, so the grant is revoked
// afterwards.

// together sends the requests concurrently and returns the responses with status 200. All others must be 400
// invalid_grant.
func together(t *testing.T, racers int, send func() harness.Answer) (winners []harness.Answer) {
	t.Helper()
	answers := make([]harness.Answer, racers)
	var start, end sync.WaitGroup
	start.Add(1)
	for i := range answers {
		end.Go(func() {
			start.Wait()
			answers[i] = send()
		})
	}
	start.Done()
	end.Wait()
	for _, answer := range answers {
		if answer.Status == http.StatusOK {
			winners = append(winners, answer)
			continue
		}
		answer.WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	}
	return winners
}

// The races run on two processes of authserver behind the gateway.
func TestRaces_OneWinnerAndGrantRevoked(t *testing.T) {
	t.Parallel()
	p := harness.NewProduct(t, harness.Private(t, harness.Options{Authservers: 2}), &met)
	ws := p.NewWorkspace(t)
	connector, owner := ws.Connector(t, harness.ReadProgrammes), p.Person(t, ws.Owner)
	sibling := connector.Connect(t, owner)
	for _, c := range []struct {
		name           string
		rounds, racers int
	}{{"refresh, 2 ways", 50, 2}, {"refresh, 16 ways", 10, 16}} {
		t.Run(c.name, func(t *testing.T) {
			for range c.rounds {
				tokens := connector.Connect(t, owner)
				winners := together(
					t,
					c.racers,
					func() harness.Answer { return connector.Refresh(t, tokens.RefreshToken) },
				)
				if len(winners) != 1 {
					t.Fatalf("%d of %d refreshes won", len(winners), c.racers)
				}
				connector.WantsRevoked(t, winners[0].Tokens(t), tokens)
			}
		})
	}
	t.Run("code, 4 ways", func(t *testing.T) {
		for range 20 {
			attempt := connector.Begin()
			form := attempt.CodeForm(attempt.Code(t, owner))
			winners := together(t, 4, func() harness.Answer { return attempt.Post(t, form) })
			if len(winners) != 1 {
				t.Fatalf("%d of 4 exchanges won", len(winners))
			}
			connector.WantsRevoked(t, winners[0].Tokens(t))
		}
	})
	t.Run("confidential code, 4 ways", func(t *testing.T) {
		app := ws.Confidential(t, "", harness.ReadProgrammes)
		for range 10 {
			body := app.Body(app.Code(t, owner))
			winners := together(t, 4, func() harness.Answer { return app.Exchange(t, body) })
			if len(winners) != 1 {
				t.Fatalf("%d of 4 exchanges won", len(winners))
			}
			p.In(ws.Workspace, winners[0].Tokens(t).AccessToken).Get(t, programmes).
				WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
		}
	})
	connector.WantsWorking(t, sibling) // a race revokes no other grant of the same user and application
}

// "A superseded refresh token: 400 invalid_grant, and the grant is revoked, at once, for refresh and access tokens
// alike."
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
