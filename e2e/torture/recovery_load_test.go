package torture

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/e2e/harness"
)

// TestRecovery_PromotionUnderLoad kills the primary while clients work, and promotes the standby. If commits wait for
// the standby, no acknowledged change is lost. If they do not, the test measures what is lost.
func TestRecovery_PromotionUnderLoad(t *testing.T) {
	onlyLong(t, "recovery", takesMinutes)
	const rounds = 3
	s := newRecoveryStage(t)
	for _, m := range modes() {
		t.Run(m.name, func(t *testing.T) {
			all := &recoveries{}
			harness.Record(t, "the primary killed under load and the standby promoted %d times: %s", rounds, all)
			for range rounds {
				s.replicate(t, m)
				w := newWorkload(t, s.Product)
				one := s.losePrimary(t, w)
				s.refreshesUseTheirRole(t)
				if m.synchronized != "" {
					w.wantsAllKept(t)
					if one.lostRows > 0 {
						t.Errorf("%d committed rows are lost", one.lostRows)
					}
				}
				one.lost, one.acknowledged = w.countLost(t)
				*all = append(*all, one)
				if m.synchronized != "" {
					aMinutePasses(t, s.Product, s.running)
					w.wantsCommands(t)
				}
				s.rejoin(t)
			}
		})
	}
}

// A recovery has the measurements of one loss of the primary.
type recovery struct {
	promotion, outage  time.Duration // until the standby is promoted; until every kind of request succeeds
	rows, lostRows     int           // rows that commitRows committed
	lostFor            time.Duration // between the commits of the first and of the last lost row
	acknowledged, lost int           // revocations, tokens, registrations and programmes of clients
}

type recoveries []recovery

func (r *recoveries) String() string {
	var worst recovery
	for _, one := range *r {
		worst.promotion, worst.outage = max(worst.promotion, one.promotion), max(worst.outage, one.outage)
		worst.rows += one.rows
		worst.lostRows += one.lostRows
		worst.lostFor = max(worst.lostFor, one.lostFor)
		worst.acknowledged += one.acknowledged
		worst.lost += one.lost
	}
	return fmt.Sprintf(
		"%d of %d rows lost, at most the last %s; %d of %d acknowledged changes of clients lost; promoted within %s, "+
			"every kind of request succeeded within %s of the loss",
		worst.lostRows, worst.rows, worst.lostFor.Round(100*time.Microsecond), worst.lost, worst.acknowledged,
		worst.promotion.Round(time.Millisecond), worst.outage.Round(10*time.Millisecond),
	)
}

// losePrimary kills the primary while clients work, and returns when the product works on the promoted standby.
func (s *recoveryStage) losePrimary(t *testing.T, w *workload) recovery {
	t.Helper()
	all := w.newStock(t)
	ctx, closing := context.WithCancel(t.Context())
	defer closing()
	clients := w.work(ctx, t, all)
	committed := s.commitRows(t)
	w.waitForWork(t)
	time.Sleep(rand.N(150 * time.Millisecond))
	s.primary.Kill()
	lostAt := time.Now()
	times := committed()
	r := recovery{rows: len(times), promotion: s.promote(t)}
	w.waitForCalm(t)
	r.outage = time.Since(lostAt)
	closing()
	clients.Wait()
	var kept int
	if _, err := fmt.Sscan(command(t, s.primary, "select count(*) from committed"), &kept); err != nil {
		t.Fatal(err)
	}
	if r.lostRows = max(0, len(times)-kept); r.lostRows > 0 {
		r.lostFor = times[len(times)-1].Sub(times[kept])
	}
	return r
}

// commitRows commits rows on the primary, one after the other, until it is lost. The returned function waits for that
// and returns when each commit was acknowledged.
func (s *recoveryStage) commitRows(t *testing.T) (committed func() []time.Time) {
	t.Helper()
	command(t, s.primary, "drop table if exists committed; create table committed (n int primary key)")
	ctx := context.WithoutCancel(t.Context())
	connection, err := pgx.Connect(ctx, s.primary.URL)
	must(t, err)
	var times []time.Time
	var writer sync.WaitGroup
	writer.Go(func() {
		defer func() { _ = connection.Close(ctx) }()
		for {
			if _, err := connection.Exec(ctx, "insert into committed values ($1)", len(times)); err != nil {
				return
			}
			times = append(times, time.Now())
		}
	})
	return func() []time.Time {
		writer.Wait()
		return times
	}
}

// countLost returns how many acknowledged changes are not in the database, and how many there were.
func (w *workload) countLost(t *testing.T) (lost, acknowledged int) {
	t.Helper()
	for _, kind := range []struct {
		sql string
		ids []string
	}{
		{`select count(*) from account.grants where id = any($1::uuid[]) and state = 'revoked'`, w.revokedGrants(t)},
		{`select count(*) from account.personal_access_tokens where name = any($1)`, keys(w.personal)},
		{`select count(*) from account.oauth_clients where id = any($1::uuid[])`, w.clients},
		{`select count(*) from resource.programmes where name = any($1)`, keys(w.programmes)},
	} {
		acknowledged += len(kind.ids)
		lost += len(kind.ids) - w.Database.Count(t, kind.sql, kind.ids)
	}
	return lost, acknowledged
}

func (w *workload) revokedGrants(t *testing.T) (ids []string) {
	t.Helper()
	for _, tokens := range w.revoked {
		ids = append(ids, harness.GrantOf(t, tokens.AccessToken))
	}
	return ids
}

func keys(m map[string]string) []string { return slices.Collect(maps.Keys(m)) }
