package postgres_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

func (l *storeTest) recordStopped(
	c client.Client, user *uuid.UUID, outcome connectionlog.Outcome, reason, request string,
) {
	l.Helper()
	must(l, l.RecordStopped(l.Context(), connectionlog.StoppedAttempt{
		WorkspaceID: l.fixture.WorkspaceID, ClientID: c.ID, UserID: user, Outcome: outcome, Reason: reason,
		RequestID: request,
	}))
}

func (l *storeTest) attempts(c client.Client, limit int) []connectionlog.Attempt {
	l.Helper()
	search := audit.Search{Client: c.ID}
	found, err := l.SearchConnections(l.Context(), l.fixture.WorkspaceID, search, audit.Cursor{}, limit)
	must(l, err)
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
	l := newStoreTest(t)
	app := l.fixture.Connector("https://api.example.org/v1", both...)
	other := l.fixture.Connector("https://api.example.org/v1", both...)
	l.recordStopped(app, nil, connectionlog.Refused, "a wrong address", "r-1")
	l.recordStopped(app, &l.grant.UserID, connectionlog.Waiting, "waits", "r-2")
	g := l.consented(app, 0)
	l.fixture.Exec(`insert into account.audit_events
			(id, tenant_id, user_id, actor, action, subject, detail, request_id, at)
		values (gen_random_uuid(), $1, $2, 'client', '`+audit.GrantRefused+`', 'grant:' || $3::uuid,
			'{"reason":"llm_integration_off","description":"It is off."}', 'r-3', now() + interval '1 minute')`,
		l.fixture.WorkspaceID, l.grant.UserID, g.ID)
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
}

func TestRecordStopped_KeepsLatestPerHour(t *testing.T) {
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

// A signed-in user of another workspace also counts as anonymous, however many accounts the user has.
func TestRecordStopped_AnonymousEntriesDoNotEvictMembers(t *testing.T) {
	t.Parallel()
	stranger := fixture.Shared(t).User(anAddress("stranger"))
	for name, user := range map[string]*uuid.UUID{"anonymous": nil, "no member": &stranger} {
		t.Run(name, func(t *testing.T) {
			l := newStoreTest(t)
			app := l.fixture.Connector("https://api.example.org/v1", both...)
			l.recordStopped(app, &l.grant.UserID, connectionlog.Refused, "of a member", "r")
			for i := range 70 {
				l.recordStopped(app, user, connectionlog.Refused, fmt.Sprint("reason ", i), "r")
			}
			stored := map[string]string{} // reason → name and address
			for _, a := range l.attempts(app, 200) {
				stored[a.Reason] = a.Person + a.Email
			}
			if latest, found := stored["reason 69"]; len(stored) != 51 || !found || latest != "" ||
				!strings.HasPrefix(stored["of a member"], "Ada Okafor") {
				t.Errorf("%d entries: %v", len(stored), stored)
			}
			if l.stops(`user_id is null`) != 50 || l.stops(`user_id is not null`) != 1 {
				t.Errorf("%d entries name no user", l.stops(`user_id is null`))
			}
		})
	}
}

func TestNoteUse_FirstCallTimeIsStored(t *testing.T) {
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
		must(t, l.fixture.Owner.QueryRow(t.Context(), `select xmin::text, first_used_at from account.grants
			where id = $1`, g.ID).Scan(&version, &first))
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
	wants(l, grant.Updated)(l.advance(t.Context(), g.ID, 2, hash(9)))
	if w := l.attempts(app, 1); !w[0].Taken[connectionlog.Refreshed] {
		t.Errorf("%+v", w)
	}
}

func TestAskable_ExcludesPermissionsWithheldByPolicy(t *testing.T) {
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

// membersByName matches the condition by which a search finds members.
var membersByName = regexp.MustCompile(`\|\| \w+\.email\)`)

// A year of a busy workspace: 25,000 events and 5,000 connections. Each search reads an index, and no search reads
// or sorts a whole table. However long a log is, a search for a name that nobody and no application has reads no entry.
func TestSearches_ReadIndexes(t *testing.T) {
	testkit.SkipIfDistributed(t, "the plan shows tasks and the names of shards")
	l := ownStoreTest(t)
	in := l.fixture.WorkspaceID
	app := l.fixture.Connector("https://api.example.org/v1", l.grant.Permissions...)
	l.fixture.Exec(`insert into account.audit_events (id, at, tenant_id, user_id, actor, action, subject, request_id)
		select gen_random_uuid(), now() - n * interval '20 minutes', $1, $2::uuid, 'user:' || $2::uuid, 'grant.used',
			case when n % 5 = 0 then 'client:' || $3::uuid else 'grant:' || gen_random_uuid() end, 'request-' || n
		from generate_series(1, 25000) n`, in, l.grant.UserID, app.ID)
	l.fixture.Exec(`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource, state,
			created_at, ends_at, generation, revoked_at)
		select gen_random_uuid(), 'connector', $3, $2, $1, '{programmes:read:programmes}', 'r', 'revoked',
			now() - n * interval '100 minutes', now(), 1, now()
		from generate_series(1, 5000) n`, in, l.grant.UserID, app.ID)
	l.fixture.Exec(`analyze account.audit_events, account.grants, account.users, account.oauth_clients`)
	noon := time.Now().AddDate(0, -6, 0)
	for name, search := range map[string]audit.Search{
		"all":                 {},
		"request":             {RequestID: "request-17777"},
		"unknown request":     {RequestID: "request-x"},
		"unknown person":      {Person: "no person has this name"},
		"unknown application": {Application: "no application has this name"},
		"a day of last year":  {Since: noon, Until: noon.AddDate(0, 0, 1)},
	} {
		plans, err := l.PlansOfSearch(t.Context(), in, search, audit.Cursor{At: time.Now(), ID: in})
		must(t, err)
		for log, plan := range plans {
			index := map[string]*regexp.Regexp{"audit log": latestEvents, "connection log": latestGrants}[log]
			if search.RequestID != "" {
				index = eventsByRequest
			}
			if scans := len(membersByName.FindAllString(plan, -1)); scans > 1 {
				t.Errorf("%s, %s searches the members %d times:\n%s", log, name, scans, plan)
			}
			if !index.MatchString(plan) || strings.Contains(plan, "Seq Scan on audit_events_earlier") ||
				strings.Contains(plan, "Seq Scan on grants") {
				t.Errorf("%s, %s does not read %s:\n%s", log, name, index, plan)
			}
			for line := range strings.Lines(plan) {
				entries := strings.Contains(line, " on audit_events") || strings.Contains(line, " on grants")
				if entries && search.Person+search.Application != "" && !strings.Contains(line, "never executed") {
					t.Errorf("%s, %s reads entries: %s\n%s", log, name, line, plan)
				}
			}
		}
	}
}

// The indexes that a search reads. The events are in the partition audit_events_earlier. Its primary key begins with
// the workspace; because every event is of this workspace, audit_events_earlier_by_time is as good.
var (
	latestEvents    = regexp.MustCompile(`using audit_events_earlier_(pkey|by_time) `)
	latestGrants    = regexp.MustCompile(`using grants_by_creation `)
	eventsByRequest = regexp.MustCompile(`audit_events_earlier_by_request `)
)

func TestAudit_RoleCannotBackdateOrChangeEvents(t *testing.T) {
	testkit.SkipIfDistributed(t, "rights on columns have no effect (deploy/citus/README.md)")
	l := newStoreTest(t)
	event := audit.Event{Actor: "system", Action: audit.KeyRotated, Subject: "key:x"}
	must(t, l.Record(t.Context(), event))
	role := connect(t, l.fixture.Database.Authserver)
	for what, sql := range map[string]string{
		"explicit time": `insert into account.audit_events (id, at, actor, action, subject)
			values (gen_random_uuid(), now() - interval '1 day', 'system', 'x', 'x')`,
		"explicit default": `insert into account.audit_events (id, at, actor, action, subject)
			values (gen_random_uuid(), now(), 'system', 'x', 'x')`,
		"update":      `update account.audit_events set at = now() - interval '1 day'`,
		"delete":      `delete from account.audit_events`,
		"truncate":    `truncate account.audit_events`,
		"drop":        `drop table account.grants`,
		"new default": `alter table account.audit_events alter column at set default '2020-01-01'`,
	} {
		var refused *pgconn.PgError
		_, err := role.Exec(t.Context(), sql)
		if !errors.As(err, &refused) || refused.Code != "42501" { // insufficient_privilege
			t.Errorf("%s: %v", what, err)
		}
	}
	// A transaction that began earlier does not give an event an earlier time.
	tx, err := role.Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	var began time.Time
	must(t, tx.QueryRow(t.Context(), `select now()`).Scan(&began))
	var earlier bool
	err = tx.QueryRow(t.Context(), `insert into account.audit_events (id, actor, action, subject)
		values ($1, 'system', 'x', 'x') returning at <= now()`, uuid.New()).Scan(&earlier)
	if err != nil || earlier {
		t.Errorf("the event has the time at which its transaction began: %v", err)
	}
}
