package postgres_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func (l *storeTest) recordStopped(
	c client.Client, user *uuid.UUID, outcome connectionlog.Outcome, reason, request string,
) {
	l.Helper()
	err := l.RecordStopped(l.Context(), connectionlog.StoppedAttempt{
		WorkspaceID: l.fixture.WorkspaceID,
		ClientID:    c.ID,
		UserID:      user,
		Outcome:     outcome,
		Reason:      reason,
		RequestID:   request,
	})
	if err != nil {
		l.Fatal(err)
	}
}

func (l *storeTest) attempts(c client.Client, limit int) []connectionlog.Attempt {
	l.Helper()
	search := audit.Search{Client: c.ID}
	found, err := l.SearchConnections(l.Context(), l.fixture.WorkspaceID, search, audit.Cursor{}, limit)
	if err != nil {
		l.Fatal(err)
	}
	var out []connectionlog.Attempt
	for _, f := range found {
		if f.Connector.ID != c.ID {
			l.Fatalf("%+v", f)
		}
		out = append(out, f.Attempt)
	}
	return out
}

// stops counts the stopped attempts of the workspace for which the condition is true.
func (l *storeTest) stops(condition string) int {
	l.Helper()
	return l.count(`select count(*) from account.connection_stops where tenant_id = $1 and `+condition,
		l.fixture.WorkspaceID)
}

func TestConnectionLog_ListsGrantsAndStoppedAttempts(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	app := l.fixture.Connector("https://api.example.org/v1", both...)
	other := l.fixture.Connector("https://api.example.org/v1", both...)
	l.recordStopped(app, nil, connectionlog.Refused, "a wrong address", "r-1")
	l.recordStopped(app, &l.grant.UserID, connectionlog.Waiting, "waits", "r-2")
	g := l.consented(app, 0)
	l.fixture.Exec(
		`insert into account.audit_events (id, tenant_id, user_id, actor, action, subject, detail, request_id, at)
		values (gen_random_uuid(), $1, $2, 'client', '`+audit.GrantRefused+`', 'grant:' || $3::uuid,
		'{"reason":"llm_integration_off","description":"It is off."}', 'r-3', now() + interval '1 minute')`,
		l.fixture.WorkspaceID,
		l.grant.UserID,
		g.ID,
	)
	attempts := l.attempts(app, 10)
	if len(attempts) != 2 || attempts[0].ID != g.ID || attempts[0].Outcome != connectionlog.Refused ||
		attempts[0].Reason != "It is off." || attempts[0].RequestID != "r-3" ||
		attempts[0].Person != "Ada Okafor" || !attempts[0].Taken[connectionlog.Exchanged] ||
		attempts[0].Taken[connectionlog.Called] {
		t.Errorf("%+v", attempts)
	}
	if last := attempts[len(attempts)-1]; last.Outcome != connectionlog.Refused || last.Reason != "a wrong address" ||
		last.RequestID != "r-1" || last.Person != "" || last.Taken[connectionlog.Consented] {
		t.Errorf("%+v", last)
	}
	if none := l.attempts(other, 10); len(none) != 0 {
		t.Errorf("another connector: %+v", none)
	}
	all, err := l.Connectors(t.Context(), l.fixture.WorkspaceID, 0, 10)
	if err != nil || len(all) != 3 || all[0].ID != app.ID || all[0].Latest == nil || all[0].Latest.ID != g.ID {
		t.Errorf("want the latest connector first, with its latest attempt: %+v %v", all, err)
	}
	if second, err := l.Connectors(t.Context(), l.fixture.WorkspaceID, 1, 1); err != nil || len(second) != 1 ||
		second[0].ID != all[1].ID {
		t.Errorf("want the second connector: %+v %v", second, err)
	}
	elsewhere, err := l.Connectors(t.Context(), l.fixture.Workspace("Hillside Youth Club"), 0, 10)
	if err != nil || len(elsewhere) != 0 {
		t.Errorf("another workspace: %+v %v", elsewhere, err)
	}
}

func TestRecordStopped_KeepsLatestPerHour(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	app := l.fixture.Connector("https://api.example.org/v1", both...)
	for i := range 20 {
		l.recordStopped(app, &l.grant.UserID, connectionlog.Refused, "no", fmt.Sprint("r-", i))
	}
	attempts := l.attempts(app, 50)
	if len(attempts) > 2 || attempts[0].RequestID != "r-19" { // the clock hour may have turned meanwhile
		t.Errorf("%+v", attempts)
	}
	l.fixture.Exec(`update account.connection_stops set at = at - interval '3 hours' where tenant_id = $1`,
		l.fixture.WorkspaceID)
	l.recordStopped(app, &l.grant.UserID, connectionlog.Refused, "no", "r-20")
	if now := l.attempts(app, 50); len(now) != len(attempts)+1 || now[0].RequestID != "r-20" {
		t.Errorf("an hour later: %+v", now)
	}
}

func TestRecordStopped_AnswerRemovesWaitingEntry(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	app := l.fixture.Connector("https://api.example.org/v1", both...)
	l.recordStopped(app, &l.grant.UserID, connectionlog.Waiting, "waits", "r-1")
	l.recordStopped(app, nil, connectionlog.Refused, "anonymous refusal", "r-2")
	if l.stops(`outcome = 'waiting'`) != 1 {
		t.Error("an anonymous refusal removed the waiting entry")
	}
	l.recordStopped(app, &l.grant.UserID, connectionlog.Denied, "no", "r-3")
	l.recordStopped(app, &l.grant.UserID, connectionlog.Waiting, "waits", "r-4")
	l.consented(app, 0)
	if l.stops(`outcome = 'waiting'`) != 0 || len(l.attempts(app, 10)) != 3 {
		t.Errorf("%+v", l.attempts(app, 10))
	}
}

func TestRecordStopped_AnonymousEntriesDoNotEvictMembers(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	app := l.fixture.Connector("https://api.example.org/v1", both...)
	l.recordStopped(app, &l.grant.UserID, connectionlog.Refused, "of a member", "r")
	for i := range 70 {
		l.recordStopped(app, nil, connectionlog.Refused, fmt.Sprint("anonymous ", i), "r")
	}
	if n := l.stops(`user_id is null`); n != 50 {
		t.Errorf("%d anonymous entries are stored", n)
	}
	if l.stops(`reason = 'anonymous 69'`) != 1 || l.stops(`user_id is not null`) != 1 {
		t.Error("the latest anonymous entry or the member's entry is missing")
	}
}

func TestConnectionLog_OmitsNamesOfNonMembers(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	app := l.fixture.Connector("https://api.example.org/v1", both...)
	stranger := l.fixture.User(uuid.NewString() + "@example.org")
	l.recordStopped(app, &stranger, connectionlog.Refused, "no", "r")
	if w := l.attempts(app, 10); len(w) != 1 || w[0].Person != "" || w[0].Email != "" {
		t.Errorf("%+v", w)
	}
}

func TestNoteUse_FirstCallTimeIsStored(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	app := l.fixture.Connector("https://api.example.org/v1", both...)
	g := l.consented(app, 0)
	recordUse := func() {
		t.Helper()
		l.fixture.Exec(`select account.note_use('{}', $1, $2)`, []uuid.UUID{g.ID}, []uuid.UUID{g.WorkspaceID})
	}
	recordUse()
	if w := l.attempts(app, 1); !w[0].Taken[connectionlog.Called] || w[0].Taken[connectionlog.Refreshed] ||
		w[0].Outcome != connectionlog.Working {
		t.Errorf("%+v", w)
	}
	var first time.Time
	read := func() (version string) {
		t.Helper()
		if err := l.fixture.Owner.QueryRow(t.Context(), `select xmin::text, first_used_at from account.grants
			where id = $1`, g.ID).Scan(&version, &first); err != nil {
			t.Fatal(err)
		}
		return version
	}
	before := read()
	recordUse()
	if read() != before {
		t.Error("a second call within the hour wrote the row")
	}
	kept := first
	l.fixture.Exec(`update account.grants set last_used_at = now() - interval '2 hours' where id = $1`, g.ID)
	recordUse()
	read()
	if now := l.stored(g); !first.Equal(kept) || time.Since(*now.LastUsed) > time.Minute {
		t.Error("the first use changed, or the last use did not")
	}
	l.wantResult(grant.Updated)(l.advance(t.Context(), g.ID, 2, hash(9)))
	if w := l.attempts(app, 1); !w[0].Taken[connectionlog.Refreshed] {
		t.Errorf("%+v", w)
	}
}

func TestAskable_ExcludesPermissionsWithheldByPolicy(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	app := l.fixture.Connector("https://api.example.org/v1", both...)
	g := l.consented(app, 0)
	askable := func() []string { return l.texts(`select unnest(account.askable($1))`, g.ID) }
	if got := askable(); len(got) != 2 {
		t.Errorf("%v", got)
	}
	l.limit(policyOf(30, workspace.Platforms(), perm.ProgrammesRead))
	if got := askable(); !slices.Equal(got, []string{string(perm.ProgrammesRead)}) {
		t.Errorf("%v", got)
	}
}

// A signed-in user of another workspace also counts as anonymous, however many accounts the user has.
func TestRecordStopped_NonMembersDoNotEvictMembers(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	app := l.fixture.Connector("https://api.example.org/v1", both...)
	l.recordStopped(app, &l.grant.UserID, connectionlog.Refused, "of a member", "r")
	stranger := l.fixture.User(uuid.NewString() + "@example.org")
	for i := range 70 {
		l.recordStopped(app, &stranger, connectionlog.Refused, fmt.Sprint("reason ", i), "s")
	}
	ofMember := func(w connectionlog.Attempt) bool { return w.Reason == "of a member" }
	if !slices.ContainsFunc(l.attempts(app, 200), ofMember) {
		t.Error("a non-member's entries evicted a member's entry")
	}
	l.wantCount(0, "entries name the non-member",
		`select count(*) from account.connection_stops where user_id = $1`, stranger)
}
