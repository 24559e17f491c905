package torture

import (
	"net/http"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

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
		workload:    w,
		attempt:     w.connector.Begin(),
		memberPath:  "/v1/account/tenants/" + w.Workspace.ID + "/members/" + member.ID,
		memberToken: s.Database.Token(t, w.Workspace, member, harness.ReadProgrammes),
		revoked:     w.connector.Connect(t, w.owner),
		old:         w.connector.Connect(t, w.owner),
	}
	l.code = l.attempt.Code(t, w.owner)
	page := l.owner.Arrive(t, l.AppURL+"/settings/developers/new?tenant="+l.Workspace.ID)
	l.form = page.FormWith(t, `form:has(input[name=days]) input[name=name]`)
	l.form.Fields.Set("name", "Token during the lag")
	l.form.Fields.Set("days", "7")
	l.form.Fields.Set("permissions", harness.ReadProgrammes)
	return l
}

func (l *lag) revoke(t *testing.T) harness.Answer {
	t.Helper()
	answer, err := tryRevoke(t, l.connector, l.revoked.RefreshToken)
	must(t, err)
	return answer
}

func (l *lag) remove(t *testing.T) harness.Answer {
	t.Helper()
	answer, err := l.As(l.Token).Try(t, http.MethodDelete, l.memberPath, "", "")
	must(t, err)
	return answer
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
