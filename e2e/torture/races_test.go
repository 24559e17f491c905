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
	spreadSites(t, times, func(t *testing.T, s site) {
		tokens := s.connector.Connect(t, s.owner)
		winner := onlyWinner(t, racers, func() harness.Answer { return s.connector.Refresh(t, tokens.RefreshToken) })
		s.connector.WantsRevoked(t, winner, tokens)
	})
}

func TestCodeRace_OfFourHasOneWinner(t *testing.T) {
	times, confidential := harness.Rounds(12, 5_000), harness.Rounds(8, 2_000)
	harness.Record(t, "%d races of 4 on a code, %d on a code of a confidential client", times, confidential)
	spreadSites(t, times, func(t *testing.T, s site) {
		attempt := s.connector.Begin()
		form := attempt.CodeForm(attempt.Code(t, s.owner))
		winner := onlyWinner(t, 4, func() harness.Answer { return attempt.Post(t, form) })
		s.connector.WantsRevoked(t, winner)
	})
	if t.Failed() {
		return
	}
	spreadSites(t, confidential, func(t *testing.T, s site) {
		body := s.app.Body(s.app.Code(t, s.owner))
		winner := onlyWinner(t, 4, func() harness.Answer { return s.app.Exchange(t, body) })
		s.In(s.Workspace, winner.AccessToken).Get(t, harness.ListPath).
			WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	})
}

// spreadSites divides rounds among workers at the pair, each with its own workspace.
func spreadSites(t *testing.T, rounds int, round func(*testing.T, site)) {
	t.Helper()
	p := enterPair(t)
	spread(t, rounds, func(t *testing.T) func(*testing.T) {
		s := siteOf(t, p)
		return func(t *testing.T) { round(t, s) }
	})
}

// onlyWinner sends the same request from every racer concurrently. One of them gets tokens.
func onlyWinner(t *testing.T, racers int, send func() harness.Answer) harness.Tokens {
	t.Helper()
	won := raced(t, racers, func(int) harness.Answer { return send() })
	if len(won) != 1 {
		t.Fatalf("%d of %d racers won", len(won), racers)
	}
	return won[0]
}

// raced sends a request from every racer concurrently, and returns the tokens of the responses with 200. All others are
// 400 invalid_grant.
func raced(t *testing.T, racers int, send func(racer int) harness.Answer) (won []harness.Tokens) {
	t.Helper()
	for _, answer := range harness.Concurrently(racers, send) {
		if answer.Status == http.StatusOK {
			won = append(won, answer.Tokens(t))
		} else {
			answer.WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		}
	}
	return won
}

// G7 and G9: a refresh that runs while access ends gets nothing that works. After the end is acknowledged, no token
// works that was issued before, during or after it.

// A connection is one of a member who is not the workspace's owner, with its own connector.
type connection struct {
	site
	member *harness.Person
	tokens harness.Tokens
}

func TestRevocation_EndsConcurrentRefresh(t *testing.T) {
	refreshAgainst(t, func(t *testing.T, c connection) {
		c.connector.Revoke(t, c.tokens.RefreshToken).Wants(t, http.StatusOK)
	})
}

func TestMembershipRemoval_EndsConcurrentRefresh(t *testing.T) {
	refreshAgainst(t, func(t *testing.T, c connection) { c.Database.Leave(t, c.Workspace, c.member.User) })
}

func TestClientDeletion_EndsConcurrentRefresh(t *testing.T) {
	refreshAgainst(t, func(t *testing.T, c connection) {
		c.As(c.Token).Send(t, http.MethodDelete, c.Clients()+"/"+c.connector.ClientID, "", "").
			Wants(t, http.StatusNoContent)
	})
}

// refreshAgainst ends the access of connections, each while its client refreshes.
func refreshAgainst(t *testing.T, end func(*testing.T, connection)) {
	times := harness.Rounds(8, 1_700)
	harness.Record(t, "%d endings while a client refreshes", times)
	spreadSites(t, times, func(t *testing.T, s site) {
		c := connection{site: s, member: s.Person(t, s.Member(t, harness.ReadProgrammes))}
		c.connector = s.Connector(t, harness.ReadProgrammes)
		c.tokens = c.connector.Connect(t, c.member)
		c.connector.List(t, c.tokens).Wants(t, http.StatusOK)
		got := refreshesDuring(t, c, func() { end(t, c) })
		c.wantsNothing(t, append([]harness.Tokens{c.tokens}, got...))
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
