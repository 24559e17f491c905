package postgres_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// A year of a busy workspace: 25,000 events and 5,000 connections. Each search reads an index, and no search reads
// or sorts a whole table.
func TestSearches_ReadIndexes(t *testing.T) {
	testkit.SkipIfDistributed(t, "the plan shows tasks and the names of shards")
	t.Parallel()
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
		from := audit.Cursor{At: time.Now(), ID: in}
		events, err := l.PlanOfEvents(t.Context(), in, search, from)
		if err != nil {
			t.Fatal(err)
		}
		connections, err := l.PlanOfConnections(t.Context(), in, search, from)
		if err != nil {
			t.Fatal(err)
		}
		for log, plan := range map[string]string{"audit log": events, "connection log": connections} {
			t.Logf("%s, %s: %s ms", log, name, executionTime.FindStringSubmatch(plan)[1])
			index := map[string]*regexp.Regexp{"audit log": latestEvents, "connection log": latestGrants}[log]
			if search.RequestID != "" {
				index = eventsByRequest
			}
			if !index.MatchString(plan) || strings.Contains(plan, "Seq Scan on audit_events_earlier") ||
				strings.Contains(plan, "Seq Scan on grants") {
				t.Errorf("%s, %s does not read %s:\n%s", log, name, index, plan)
			}
		}
	}
}

var executionTime = regexp.MustCompile(`Execution Time: ([\d.]+) ms`)

// The indexes that a search reads. The events are in the partition audit_events_earlier. Its primary key begins with
// the workspace; because every event is of this workspace, audit_events_earlier_by_time is as good.
var (
	latestEvents    = regexp.MustCompile(`using audit_events_earlier_(pkey|by_time) `)
	latestGrants    = regexp.MustCompile(`using grants_by_creation `)
	eventsByRequest = regexp.MustCompile(`audit_events_earlier_by_request `)
)
