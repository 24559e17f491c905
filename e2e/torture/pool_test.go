package torture

import (
	"net/http"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

const (
	heldGrants = 40              // more than the connections of two processes
	promptly   = 8 * time.Second // the longest allowed response time
)

// TestPostgres_PoolExhaustionLosesNoToken locks the rows of grants whose clients refresh, until every connection of
// authserver waits. Its callers get 503 in time, the API works, and afterwards each client still has its token: Redis
// has undone what Postgres certainly did not commit.
func TestPostgres_PoolExhaustionLosesNoToken(t *testing.T) {
	parallelIfShort(t)
	times := harness.Rounds(1, 100)
	harness.Record(t, "%d times the rows of %d grants held while their clients refresh", times, heldGrants)
	s := newPostgresStage(t)
	held := make([]harness.Tokens, heldGrants)
	for i := range held {
		held[i] = s.connector.Connect(t, s.owner)
	}
	for range times {
		release := s.Database.Hold(t, `select id from account.grants where tenant_id = $1 for update`, s.Workspace.ID)
		answers := harness.Concurrently(heldGrants+2, func(racer int) harness.Answer {
			began := time.Now()
			defer func() {
				if took := time.Since(began); took > atMost(promptly) {
					t.Errorf("got a response after %s", took)
				}
			}()
			switch racer {
			case heldGrants:
				time.Sleep(time.Second) // all others wait by now
				return s.As(s.Token).Get(t, s.Clients())
			case heldGrants + 1:
				time.Sleep(time.Second)
				return s.list(t).Wants(t, http.StatusOK)
			}
			return s.connector.Refresh(t, held[racer].RefreshToken)
		})
		release()
		for _, answer := range answers[:heldGrants] {
			answer.WantsRetryAfter(t).WantsFlat(t, http.StatusServiceUnavailable, "temporarily_unavailable")
		}
		if other := answers[heldGrants]; other.Status != http.StatusOK {
			other.WantsRetryAfter(t).WantsFlat(t, http.StatusServiceUnavailable, "temporarily_unavailable")
		}
		s.wantsNormalSoon(t)
		for i := range held {
			held[i] = s.connector.WantsWorking(t, held[i])
		}
	}
}
