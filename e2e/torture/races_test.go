package torture

import (
	"net/http"
	"slices"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// G1, G2 and G3 over HTTP, through two processes: one 200 each, the grant dead afterwards, no token works, no 5xx.

func TestRefreshRace_OfTwoHasOneWinner(t *testing.T) { refreshRaces(t, harness.Rounds(20, 10_000), 2) }
func TestRefreshRace_OfSixteenHasOneWinner(t *testing.T) {
	refreshRaces(t, harness.Rounds(4, 2_000), 16)
}

func refreshRaces(t *testing.T, times, racers int) {
	harness.Record(t, "%d refresh races of %d", times, racers)
	spreadConnectors(t, times, func(t *testing.T, connector harness.Connector, owner *harness.Person) {
		tokens := connector.Connect(t, owner)
		winner := onlyWinner(t, racers, func() harness.Answer { return connector.Refresh(t, tokens.RefreshToken) })
		connector.WantsRevoked(t, winner, tokens)
	})
}

func TestCodeRace_OfFourHasOneWinner(t *testing.T) {
	times, confidential := harness.Rounds(12, 5_000), harness.Rounds(8, 2_000)
	harness.Record(t, "%d races of 4 on a code, %d on a code of a confidential client", times, confidential)
	spreadConnectors(t, times, func(t *testing.T, connector harness.Connector, owner *harness.Person) {
		attempt := connector.Begin()
		form := attempt.CodeForm(attempt.Code(t, owner))
		winner := onlyWinner(t, 4, func() harness.Answer { return attempt.Post(t, form) })
		connector.WantsRevoked(t, winner)
	})
	if t.Failed() {
		return
	}
	p := enterPair(t)
	spread(t, confidential, func(t *testing.T) func(*testing.T) {
		ws := p.NewWorkspace(t)
		app, owner := ws.Confidential(t, "", harness.ReadProgrammes), p.Person(t, ws.Owner)
		return func(t *testing.T) {
			body := app.Body(app.Code(t, owner))
			winner := onlyWinner(t, 4, func() harness.Answer { return app.Exchange(t, body) })
			p.In(ws.Workspace, winner.AccessToken).Get(t, harness.ListPath).
				WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
		}
	})
}

// spreadConnectors divides rounds among workers at the pair, each with its own connector and user.
func spreadConnectors(t *testing.T, rounds int, round func(*testing.T, harness.Connector, *harness.Person)) {
	t.Helper()
	p := enterPair(t)
	spread(t, rounds, func(t *testing.T) func(*testing.T) {
		ws := p.NewWorkspace(t)
		connector, owner := ws.Connector(t, harness.ReadProgrammes), p.Person(t, ws.Owner)
		return func(t *testing.T) { round(t, connector, owner) }
	})
}

// onlyWinner sends the same request from every racer concurrently. One response is 200, and all others are 400
// invalid_grant.
func onlyWinner(t *testing.T, racers int, send func() harness.Answer) harness.Tokens {
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
		t.Fatalf("%d of %d racers won", len(winners), racers)
	}
	return winners[0].Tokens(t)
}

// G7 and G9: a refresh that runs while access ends gets nothing that works. After the end is acknowledged, no token
// works that was issued before, during or after it.

type connection struct {
	ws        harness.TestWorkspace
	member    *harness.Person
	connector harness.Connector
	tokens    harness.Tokens
}

// newConnection connects a new member of a workspace.
func newConnection(t *testing.T, p *harness.Product, ws harness.TestWorkspace) connection {
	t.Helper()
	member := p.Person(t, ws.Member(t, harness.ReadProgrammes))
	connector := ws.Connector(t, harness.ReadProgrammes)
	return connection{ws, member, connector, connector.Connect(t, member)}
}

func TestRevocation_EndsConcurrentRefresh(t *testing.T) {
	refreshAgainst(t, func(t *testing.T, _ *harness.Product, c connection) {
		c.connector.Revoke(t, c.tokens.RefreshToken).Wants(t, http.StatusOK)
	})
}

func TestMembershipRemoval_EndsConcurrentRefresh(t *testing.T) {
	refreshAgainst(t, func(t *testing.T, p *harness.Product, c connection) {
		p.Database.Leave(t, c.ws.Workspace, c.member.User)
	})
}

func TestClientDeletion_EndsConcurrentRefresh(t *testing.T) {
	refreshAgainst(t, func(t *testing.T, p *harness.Product, c connection) {
		p.As(c.ws.Token).Send(t, http.MethodDelete, c.ws.Clients()+"/"+c.connector.ClientID, "", "").
			Wants(t, http.StatusNoContent)
	})
}

// refreshAgainst ends the access of connections, each while its client refreshes.
func refreshAgainst(t *testing.T, end func(*testing.T, *harness.Product, connection)) {
	times := harness.Rounds(8, 1_700)
	harness.Record(t, "%d endings while a client refreshes", times)
	p := enterPair(t)
	spread(t, times, func(t *testing.T) func(*testing.T) {
		ws := p.NewWorkspace(t)
		return func(t *testing.T) {
			c := newConnection(t, p, ws)
			c.connector.List(t, c.tokens).Wants(t, http.StatusOK)
			got := refreshesDuring(t, c, func() { end(t, p, c) })
			c.wantsNothing(t, append([]harness.Tokens{c.tokens}, got...))
		}
	})
}

// refreshesDuring refreshes repeatedly with the newest token while end runs, and returns all tokens that it got.
func refreshesDuring(t *testing.T, c connection, end func()) []harness.Tokens {
	t.Helper()
	var got []harness.Tokens
	harness.Concurrently(2, func(racer int) harness.Answer {
		if racer == 0 {
			end()
			return harness.Answer{}
		}
		newest := c.tokens
		for range 20 {
			answer := c.connector.Refresh(t, newest.RefreshToken)
			if answer.Status != http.StatusOK {
				answer.WantsFlat(t, http.StatusBadRequest, "invalid_grant", "invalid_client")
				break
			}
			newest = answer.Tokens(t)
			got = append(got, newest)
		}
		return harness.Answer{}
	})
	return got
}

// wantsNothing checks that no token works. It tries the newest token first, since a superseded one would revoke the
// grant.
func (c connection) wantsNothing(t *testing.T, tokens []harness.Tokens) {
	t.Helper()
	slices.Reverse(tokens)
	for _, token := range tokens {
		if answer := c.connector.List(t, token); answer.Status != http.StatusUnauthorized &&
			answer.Status != http.StatusForbidden {
			t.Errorf("an access token outlived the end:\n%s", answer)
		}
	}
	for _, token := range tokens {
		c.connector.Refresh(t, token.RefreshToken).
			WantsFlat(t, http.StatusBadRequest, "invalid_grant", "invalid_client")
	}
}
