package torture

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
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
	committed := s.commitRows(t)
	var times []time.Time
	var r recovery
	w.whileClientsWork(t, func() {
		s.primary.Kill()
		lostAt := time.Now()
		times = committed()
		r = recovery{rows: len(times), promotion: s.promote(t)}
		w.waitForCalm(t)
		r.outage = time.Since(lostAt)
	})
	kept, err := strconv.Atoi(command(t, s.primary, "select count(*) from committed"))
	must(t, err)
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

// If a primary is lost, the changes that the standby has not received are lost. These tests cut the connection to the
// standby, let clients work, and promote the standby.

// A lag is the work that clients do after the connection to the standby was cut.
type lag struct {
	*workload
	attempt     harness.Attempt // approved before
	code        string
	memberPath  string
	memberToken string         // of the member who is removed
	revoked     harness.Tokens // of the grant that is revoked
	old, newest harness.Tokens // before and after the refresh
	exchanged   harness.Tokens
	client      string // id of the application that is registered
	created     string // personal access token
	form        harness.Form
	cut, lost   string // when the connection was cut and the primary was lost, by the clock of Postgres
}

func (s *recoveryStage) newLag(t *testing.T) *lag {
	t.Helper()
	w := newWorkload(t, s.Product)
	member := w.Member(t, harness.ReadProgrammes)
	l := &lag{
		workload: w, attempt: w.connector.Begin(),
		memberPath:  "/v1/account/tenants/" + w.Workspace.ID + "/members/" + member.ID,
		memberToken: s.Database.Token(t, w.Workspace, member, harness.ReadProgrammes),
		revoked:     w.connector.Connect(t, w.owner),
		old:         w.connector.Connect(t, w.owner),
	}
	l.code = l.attempt.Code(t, w.owner)
	page := l.owner.Arrive(t, l.AppURL+"/settings/developers/new?tenant="+l.Workspace.ID)
	l.form = tokenForm(t, page, "Token during the lag")
	return l
}

func (l *lag) revoke(t *testing.T) harness.Answer {
	t.Helper()
	return l.connector.Revoke(t, l.revoked.RefreshToken)
}

func (l *lag) remove(t *testing.T) harness.Answer {
	t.Helper()
	return l.As(l.Token).Send(t, http.MethodDelete, l.memberPath, "", "")
}

func (l *lag) register(t *testing.T) harness.Answer {
	t.Helper()
	return l.As(l.Token).JSON(t, http.MethodPost, l.Clients(), harness.ConfidentialBody(harness.ReadProgrammes))
}

func (l *lag) exchange(t *testing.T) harness.Answer {
	t.Helper()
	return l.attempt.Post(t, l.attempt.CodeForm(l.code))
}

// create submits the form for a personal access token.
func (l *lag) create(t *testing.T) harness.Page {
	t.Helper()
	return l.owner.Submit(t, l.form)
}

func (l *lag) now(t *testing.T) string {
	t.Helper()
	return l.Database.Text(t, `select clock_timestamp()::text`)
}

// audited returns the number of audit events of the workspace between the cut and the loss.
func (l *lag) audited(t *testing.T) int {
	t.Helper()
	const events = `select count(*) from account.audit_events
		where tenant_id = $1 and at between $2::timestamptz and $3::timestamptz`
	return l.Database.Count(t, events, l.Workspace.ID, l.cut, l.lost)
}

// work makes one change of each kind. All changes are acknowledged.
func (l *lag) work(t *testing.T) {
	t.Helper()
	l.revoke(t).Wants(t, http.StatusOK)
	l.remove(t).Wants(t, http.StatusNoContent)
	l.client, _ = l.register(t).Wants(t, http.StatusCreated).Object(t)["clientId"].(string)
	l.exchanged = l.exchange(t).Tokens(t)
	l.created = string(personalToken.Find(l.create(t).Wants(t, http.StatusOK).Body))
	l.newest = l.connector.Refresh(t, l.old.RefreshToken).Tokens(t)
}

func (l *lag) works(t *testing.T, token string) harness.Answer {
	t.Helper()
	return l.In(l.Workspace, token).Get(t, harness.ListPath)
}

// wantsLost checks that all data that only Postgres has is as before the cut.
func (l *lag) wantsLost(t *testing.T) {
	t.Helper()
	l.works(t, l.memberToken).Wants(t, http.StatusOK)
	l.works(t, l.created).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	l.As(l.Token).Get(t, l.Clients()+"/"+l.client).Wants(t, http.StatusNotFound)
	l.connector.WantsRevoked(t, l.exchanged)
	l.exchange(t).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	l.works(t, l.revoked.AccessToken).Wants(t, http.StatusOK)
	if audited := l.audited(t); audited > 0 {
		t.Errorf("%d audit events from after the cut", audited)
	}
}

// wantsRefreshed checks a refresh that the standby never received. If Redis is kept, it has the refresh. If Redis is
// lost, the client's token is refused and the superseded token is current again.
func (l *lag) wantsRefreshed(t *testing.T, redisLost bool) {
	t.Helper()
	if redisLost {
		l.works(t, l.newest.AccessToken).Wants(t, http.StatusOK)
		l.connector.Refresh(t, l.newest.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		l.connector.Refresh(t, l.old.RefreshToken).Wants(t, http.StatusOK)
		return
	}
	l.newest = l.connector.WantsWorking(t, l.newest)
	l.connector.Refresh(t, l.old.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	l.connector.WantsRevoked(t, l.newest)
}

// lose kills the primary, promotes the standby and optionally empties Redis.
func (s *recoveryStage) lose(t *testing.T, l *lag, redisLost bool) {
	t.Helper()
	l.lost = l.now(t)
	if l.newest.RefreshToken == "" || (l.created != "" && l.audited(t) < 5) {
		t.Errorf("%d audit events before the loss, which is too few for the test", l.audited(t))
	}
	s.primary.Kill()
	s.promote(t)
	if redisLost {
		must(t, flushAll(s.running.RedisURL))
	}
	l.waitForCalm(t)
}

// eachLoss runs a test with Redis kept and with Redis lost too.
func (s *recoveryStage) eachLoss(t *testing.T, m mode, test func(t *testing.T, l *lag, redisLost bool)) {
	t.Helper()
	for name, redisLost := range map[string]bool{"Redis is kept": false, "Redis is lost too": true} {
		t.Run(name, func(t *testing.T) {
			s.replicate(t, m)
			l := s.newLag(t)
			s.cutLine(t)
			l.cut = l.now(t)
			test(t, l, redisLost)
			s.rejoin(t)
		})
	}
}

// Commits do not wait for the standby: all changes are acknowledged, and all that Redis does not have are lost.
func TestRecovery_LagOfAsynchronousStandbyIsLost(t *testing.T) {
	onlyLong(t, "recovery", takesMinutes)
	harness.Record(t, "the standby cut off, one change of each kind acknowledged, the standby promoted, "+
		"with Redis kept and lost")
	s := newRecoveryStage(t)
	s.eachLoss(t, modes()[0], func(t *testing.T, l *lag, redisLost bool) {
		l.work(t)
		s.lose(t, l, redisLost)
		l.wantsLost(t)
		if redisLost {
			l.connector.WantsWorking(t, l.revoked)
		} else { // Redis has the revocation, and the next refresh revokes the grant in Postgres again
			l.connector.Refresh(t, l.revoked.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
			l.connector.WantsRevoked(t, l.revoked)
		}
		l.wantsRefreshed(t, redisLost)
	})
}

// Commits wait for the standby: only refreshes are acknowledged, because only their commits do not wait (G9).
func TestRecovery_LagOfSynchronousStandbyIsNotAcknowledged(t *testing.T) {
	onlyLong(t, "recovery", takesMinutes)
	harness.Record(t, "the standby cut off, one change of each kind refused, a refresh acknowledged, the standby "+
		"promoted, with Redis kept and lost")
	s := newRecoveryStage(t)
	s.eachLoss(t, modes()[1], func(t *testing.T, l *lag, redisLost bool) {
		const unavailable = http.StatusServiceUnavailable
		l.revoke(t).Wants(t, unavailable)
		l.revoke(t).Wants(t, unavailable) // the primary has revoked it, the standby has not
		l.remove(t).Wants(t, unavailable)
		l.register(t).Wants(t, unavailable)
		l.exchange(t).Wants(t, unavailable)
		l.create(t).Wants(t, unavailable)
		l.works(t, l.Token).Wants(t, http.StatusOK) // reads still work
		l.newest = l.connector.Refresh(t, l.old.RefreshToken).Tokens(t)
		s.lose(t, l, redisLost)
		l.wantsRefreshed(t, redisLost)
		if redisLost {
			l.exchange(t).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		} else {
			l.connector.WantsWorking(t, l.exchange(t).Tokens(t))
		}
		l.revoke(t).Wants(t, http.StatusOK)
		l.connector.WantsRevoked(t, l.revoked)
		l.remove(t).Wants(t, http.StatusNoContent)
	})
}
