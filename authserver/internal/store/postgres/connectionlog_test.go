package postgres_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/perm"
)

func (l *ledger) stop(c client.Client, user *uuid.UUID, outcome connectionlog.Outcome, reason, request string) {
	l.Helper()
	err := l.RecordStopped(
		l.Context(),
		connectionlog.StoppedAttempt{
			WorkspaceID: l.world.WorkspaceID,
			ClientID:    c.ID,
			UserID:      user,
			Outcome:     outcome,
			Reason:      reason,
			RequestID:   request,
		},
	)
	if err != nil {
		l.Fatal(err)
	}
}

func (l *ledger) walks(c client.Client, each int) []connectionlog.Attempt {
	l.Helper()
	found, err := l.ConnectionAttempts(l.Context(), l.world.WorkspaceID, &c.ID, each)
	if err != nil || len(found) != 1 || found[0].ID != c.ID {
		l.Fatalf("%+v %v", found, err)
	}
	return found[0].Attempts
}

func (l *ledger) count(query string, args ...any) int {
	l.Helper()
	var n int
	if err := l.world.Owner.QueryRow(l.Context(), query, args...).Scan(&n); err != nil {
		l.Fatal(err)
	}
	return n
}

func TestAConnectorsWalksAreItsGrantsAndItsStops(t *testing.T) {
	l := newLedger(t)
	app, other := l.world.Connector(
		"https://api.example.org/v1",
		both...), l.world.Connector(
		"https://api.example.org/v1",
		both...)
	l.stop(app, nil, connectionlog.Refused, "a wrong address", "r-1")
	l.stop(app, &l.grant.UserID, connectionlog.Waiting, "waits", "r-2")
	g := l.consented(app, 0)
	l.world.Exec(
		`insert into account.audit_events (id, tenant_id, user_id, actor, action, subject, detail, request_id, at)
		values (gen_random_uuid(), $1, $2, 'client', 'grant.refused', 'grant:' || $3::uuid, '{"reason":"llm_integration_off","description":"It is off."}', 'r-3', now() + interval '1 minute')`,
		l.world.WorkspaceID,
		l.grant.UserID,
		g.ID,
	)
	walks := l.walks(app, 10)
	if len(walks) != 2 || walks[0].ID != g.ID || walks[0].Outcome != connectionlog.Refused ||
		walks[0].Reason != "It is off." ||
		walks[0].RequestID != "r-3" ||
		walks[0].Person != "Ada Okafor" ||
		!walks[0].Taken[connectionlog.Exchanged] ||
		walks[0].Taken[connectionlog.Called] {
		t.Errorf("%+v", walks)
	}
	if last := walks[len(walks)-1]; last.Outcome != connectionlog.Refused || last.Reason != "a wrong address" ||
		last.RequestID != "r-1" ||
		last.Person != "" ||
		last.Taken[connectionlog.Consented] {
		t.Errorf("%+v", last)
	}
	if none := l.walks(other, 10); len(none) != 0 {
		t.Errorf("of another connector: %+v", none)
	}
	all, err := l.ConnectionAttempts(t.Context(), l.world.WorkspaceID, nil, 1)
	if err != nil || len(all) != 3 || all[0].ID != app.ID || len(all[0].Attempts) != 1 ||
		all[0].Attempts[0].ID != g.ID {
		t.Errorf("the busy one first, its latest walk alone: %+v %v", all, err)
	}
	if elsewhere, err := l.ConnectionAttempts(t.Context(), l.world.Workspace("Hillside Youth Club"), nil, 10); err != nil ||
		len(elsewhere) != 0 {
		t.Errorf("elsewhere: %+v %v", elsewhere, err)
	}
}

func TestAStopIsOneAnHourAndTheLatestOfThem(t *testing.T) {
	l := newLedger(t)
	app := l.world.Connector("https://api.example.org/v1", both...)
	for i := range 20 {
		l.stop(app, &l.grant.UserID, connectionlog.Refused, "no", fmt.Sprint("r-", i))
	}
	walks := l.walks(app, 50)
	if len(walks) > 2 || walks[0].RequestID != "r-19" { // the clock hour may have turned meanwhile
		t.Errorf("%+v", walks)
	}
	l.world.Exec(`update account.connection_stops set at = at - interval '3 hours'`)
	l.stop(app, &l.grant.UserID, connectionlog.Refused, "no", "r-20")
	if now := l.walks(app, 50); len(now) != len(walks)+1 || now[0].RequestID != "r-20" {
		t.Errorf("an hour later: %+v", now)
	}
}

func TestAnAnswerTakesTheWaitingPageAway(t *testing.T) {
	l := newLedger(t)
	app := l.world.Connector("https://api.example.org/v1", both...)
	l.stop(app, &l.grant.UserID, connectionlog.Waiting, "waits", "r-1")
	l.stop(app, nil, connectionlog.Refused, "somebody else's trouble", "r-2")
	if l.count(`select count(*) from account.connection_stops where outcome = 'waiting'`) != 1 {
		t.Error("a stranger's trouble answered the page")
	}
	l.stop(app, &l.grant.UserID, connectionlog.Denied, "no", "r-3")
	l.stop(app, &l.grant.UserID, connectionlog.Waiting, "waits", "r-4")
	l.consented(app, 0)
	if l.count(`select count(*) from account.connection_stops where outcome = 'waiting'`) != 0 ||
		len(l.walks(app, 10)) != 3 {
		t.Errorf("%+v", l.walks(app, 10))
	}
}

func TestStrangersPushNobodyOutOfTheLog(t *testing.T) {
	l := newLedger(t)
	app := l.world.Connector("https://api.example.org/v1", both...)
	l.stop(app, &l.grant.UserID, connectionlog.Refused, "of a person", "r")
	for i := range 70 {
		l.stop(app, nil, connectionlog.Refused, fmt.Sprint("of nobody ", i), "r")
	}
	if n := l.count(`select count(*) from account.connection_stops where user_id is null`); n != 50 {
		t.Errorf("%d are kept of nobody", n)
	}
	if l.count(`select count(*) from account.connection_stops where reason = 'of nobody 69'`) != 1 ||
		l.count(`select count(*) from account.connection_stops where user_id is not null`) != 1 {
		t.Error("the latest, or that of a person, is gone")
	}
}

func TestAStrangersNameIsNotInTheLog(t *testing.T) {
	l := newLedger(t)
	app := l.world.Connector("https://api.example.org/v1", both...)
	stranger := l.world.User("stranger@example.org")
	l.stop(app, &stranger, connectionlog.Refused, "no", "r")
	if w := l.walks(app, 10); len(w) != 1 || w[0].Person != "" || w[0].Email != "" {
		t.Errorf("%+v", w)
	}
}

func TestTheFirstCallOfAGrantIsKept(t *testing.T) {
	l := newLedger(t)
	app := l.world.Connector("https://api.example.org/v1", both...)
	g := l.consented(app, 0)
	note := func() {
		t.Helper()
		l.world.Exec(`select account.note_use('{}', $1)`, []uuid.UUID{g.ID})
	}
	note()
	if w := l.walks(app, 1); !w[0].Taken[connectionlog.Called] || w[0].Taken[connectionlog.Refreshed] ||
		w[0].Outcome != connectionlog.Working {
		t.Errorf("%+v", w)
	}
	var first time.Time
	read := func() (version string) {
		t.Helper()
		if err := l.world.Owner.QueryRow(t.Context(), `select xmin::text, first_used_at from account.grants where id = $1`, g.ID).Scan(&version, &first); err != nil {
			t.Fatal(err)
		}
		return version
	}
	before := read()
	note()
	if read() != before {
		t.Error("a second call within the hour is a write")
	}
	kept := first
	l.world.Exec(`update account.grants set last_used_at = now() - interval '2 hours' where id = $1`, g.ID)
	note()
	read()
	if now := l.stored(g); !first.Equal(kept) || time.Since(*now.LastUsed) > time.Minute {
		t.Error("the first call moved, or the last did not")
	}
	l.wantFence(grant.Updated)(l.advance(t.Context(), g.ID, 2, hash(9)))
	if w := l.walks(app, 1); !w[0].Taken[connectionlog.Refreshed] {
		t.Errorf("%+v", w)
	}
}

func TestWhatThePolicyWithholdsCannotBeAskedForAgain(t *testing.T) {
	l := newLedger(t)
	app := l.world.Connector("https://api.example.org/v1", both...)
	g := l.consented(app, 0)
	askable := func() (out []string) {
		t.Helper()
		if err := l.world.Owner.QueryRow(t.Context(), `select account.askable($1)`, g.ID).Scan(&out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	if got := askable(); len(got) != 2 {
		t.Errorf("%v", got)
	}
	l.limit(policyOf(30, workspace.Platforms(), perm.ProgrammesRead))
	if got := askable(); !slices.Equal(got, []string{string(perm.ProgrammesRead)}) {
		t.Errorf("%v", got)
	}
}

// Somebody who is signed in and works elsewhere is a stranger as well, with any number of accounts.
func TestStrangersWithAccountsPushNobodyOutOfTheLog(t *testing.T) {
	l := newLedger(t)
	app := l.world.Connector("https://api.example.org/v1", both...)
	l.stop(app, &l.grant.UserID, connectionlog.Refused, "of a person", "r")
	stranger := l.world.User("eve@example.org")
	for i := range 70 {
		l.stop(app, &stranger, connectionlog.Refused, fmt.Sprint("reason ", i), "s")
	}
	if !slices.ContainsFunc(
		l.walks(app, 200),
		func(w connectionlog.Attempt) bool { return w.Reason == "of a person" },
	) {
		t.Error("a stranger pushed out what concerns a member")
	}
	if n := l.count(`select count(*) from account.connection_stops where user_id = $1`, stranger); n != 0 {
		t.Errorf("the workspace keeps %d times who the stranger was", n)
	}
}
