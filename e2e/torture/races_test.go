package torture

import (
	"net/http"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// G1, G2 and G3 over HTTP, through two processes: one 200 each, the grant dead afterwards, no token works, no 5xx.

func TestRefreshRace_OfTwoHasOneWinner(t *testing.T) { refreshRaces(t, harness.Rounds(40, 10_000), 2) }
func TestRefreshRace_OfSixteenHasOneWinner(t *testing.T) {
	refreshRaces(t, harness.Rounds(8, 2_000), 16)
}

func refreshRaces(t *testing.T, times, racers int) {
	harness.Record(t, "%d refresh races of %d", times, racers)
	p := enterPair(t)
	spread(t, times, func(t *testing.T) func(*testing.T) {
		ws := p.NewWorkspace(t)
		connector, owner := ws.Connector(t, harness.ReadProgrammes), p.Person(t, ws.Owner)
		return func(t *testing.T) {
			tokens := connector.Connect(t, owner)
			winner := onlyWinner(t, racers, func() harness.Answer { return connector.Refresh(t, tokens.RefreshToken) })
			connector.WantsRevoked(t, winner, tokens)
		}
	})
}

func TestCodeRace_OfFourHasOneWinner(t *testing.T) {
	times := harness.Rounds(24, 5_000)
	harness.Record(t, "%d races of 4 on a code", times)
	p := enterPair(t)
	spread(t, times, func(t *testing.T) func(*testing.T) {
		ws := p.NewWorkspace(t)
		connector, owner := ws.Connector(t, harness.ReadProgrammes), p.Person(t, ws.Owner)
		return func(t *testing.T) {
			attempt := connector.Begin()
			form := attempt.CodeForm(attempt.Code(t, owner))
			winner := onlyWinner(t, 4, func() harness.Answer { return attempt.Post(t, form) })
			connector.WantsRevoked(t, winner)
		}
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
