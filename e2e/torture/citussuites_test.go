package torture

import (
	"bytes"
	"context"
	"flag"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// citusNodes are the nodes of the cluster of TestCitus_SuitesHold, the coordinator first.
var citusNodes []*localstore.Postgres

// TestCitus_SuitesHold runs the short forms of suites against distributed installations: races and endings, with all
// shards moved to one worker and back between them, and the histories of grants while a worker, among others, is killed
// and frozen.
func TestCitus_SuitesHold(t *testing.T) {
	onlyLong(t, "citus", "it needs the extension citus")
	useShortForm(t)
	moves := 0
	harness.Record(t, "races, endings, lost answers and histories; all shards moved away and back %v times",
		harness.Deferred[int](func() int { return moves }))
	cluster := harness.StartCitus(t, 2, false)
	citusNodes = cluster.Nodes
	options := pairOfAuthservers()
	options.Settings = busyMachine()
	running := harness.Private(t, options)
	t.Cleanup(func() { logCauses(t, running.LogDir()) })
	// Concurrent consents and sign-ups lock the whole tables that are copied to each node, and some get 503.
	workers = 1
	before := pair
	pair = func() (*stack.Stack, error) { return running, nil }
	t.Cleanup(func() { pair, workers = before, 4 })

	admin, err := pgx.Connect(t.Context(), running.DatabaseURL)
	must(t, err)
	t.Cleanup(func() { _ = admin.Close(context.WithoutCancel(t.Context())) })
	for _, suite := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"refreshes of two", TestRefreshRace_OfTwoHasOneWinner},
		{"refreshes of sixteen", TestRefreshRace_OfSixteenHasOneWinner},
		{"codes", TestCodeRace_OfFourHasOneWinner},
		{"lost answers", TestLostAnswers_CostNoGrant},
		{"revocation", TestRevocation_EndsConcurrentRefresh},
		{"client", TestClientDeletion_EndsConcurrentRefresh},
		{"membership", TestMembershipRemoval_EndsConcurrentRefresh},
	} {
		t.Run(suite.name, suite.run)
		for _, sql := range moveAwayAndBack {
			_, err := admin.Exec(t.Context(), sql)
			must(t, err)
		}
		moves++
	}
	t.Run("histories", TestHistories_OfGrantsAreLinearizable)
}

// moveAwayAndBack moves the shards of the second worker to the first one, and then half of all back.
var moveAwayAndBack = []string{
	"select citus_drain_node(nodename, nodeport, 'force_logical') from pg_dist_node where groupid = 2",
	"select citus_set_node_property(nodename, nodeport, 'shouldhaveshards', true) from pg_dist_node where groupid = 2",
	"select rebalance_table_shards(shard_transfer_mode := 'force_logical')",
}

// useShortForm makes a test run suites in their short form, whatever the flag says.
func useShortForm(t *testing.T) {
	t.Helper()
	long := flag.Lookup("long").Value
	before := long.String()
	must(t, long.Set("false"))
	t.Cleanup(func() { must(t, long.Set(before)) })
}

// notDistributed matches the tests of e2e that do not run against a distributed database: those that need no stack, or
// their own Postgres or a browser; those that hold locks on rows of copied tables, because Citus locks whole tables;
// and those that change times with SQL that Citus refuses.
const notDistributed = "^Test(Architecture|ChecksAndWrites_|Conformance_Expected|DeployPages|EarlierPrograms|Pages|" +
	"README|SQL|Schema|Screenshots|Settings|Spec|Style|" +
	"Described_StoreUnavailable|Doctor_MetadataDocument|Documents|Finish|Forms_Crash|Leaks|Logs|Mails|Metrics|" +
	"Migrate|Outage|Races|RedisReplies|SigningKey|Traces|Webhooks_Deliver|" +
	"Browser|" +
	"Tie|" +
	"ConnectorPolicy_Lowering|Credentials_Revoked|IdempotencyKey_AfterAccess|Introspection_Invalid|" +
	"Registered_OldSecret|WorkspaceRoutes_RejectInvalid)"

// TestCitus_EndToEndTestsPass runs the tests of e2e that share a stack against a distributed installation, one at a
// time.
func TestCitus_EndToEndTestsPass(t *testing.T) {
	onlyLong(t, "citus", "it needs the extension citus")
	passed := 0
	harness.Record(t, "%v tests of e2e", harness.Deferred[int](func() int { return passed }))
	harness.StartCitus(t, 2, false)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-parallel=1", "-timeout=30m",
		"-skip="+notDistributed, ".")
	command.Dir = ".."
	out, err := command.CombinedOutput()
	passed = bytes.Count(out, []byte("\n--- PASS: "))
	if err != nil || passed == 0 {
		t.Errorf("go test: %v\n%s", err, out)
	}
}

// checkEventMonths removes a future month of the events and adds a past one on all nodes, and checks that authserver's
// role creates the former again and drops the latter, as retention does. It deletes the earlier events.
func checkEventMonths(t *testing.T, admin *pgx.Conn, authserver, workspace string) {
	t.Helper()
	shards := func(table string) (count int) {
		t.Helper()
		must(t, admin.QueryRow(t.Context(), `select count(*) from citus_shards s join pg_dist_node n
			on (n.nodename, n.nodeport) = (s.nodename, s.nodeport)
			where n.groupid > 0 and s.table_name = to_regclass($1)`, table).Scan(&count))
		return count
	}
	var last, begins string
	must(t, admin.QueryRow(t.Context(), `select name, starts::text
		from account.months_of('account.events') where ends is not null order by ends desc limit 1`).
		Scan(&last, &begins))
	for _, sql := range []string{
		"alter table account.events detach partition account.events_later",
		"drop table " + last,
		"alter table account.events attach partition account.events_later for values from ('" + begins +
			"') to (maxvalue)",
		"drop table account.events_earlier",
		`create table account.events_2020_01 partition of account.events
			for values from ('2020-01-01') to ('2020-02-01')`,
		`insert into account.events (tenant_id, type, data, created_at)
			values ('` + workspace + `', 'x.y', '{}', '2020-01-02')`,
	} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if n := shards("account.events_2020_01"); n == 0 {
		t.Fatal("the workers have no shard of a month of events")
	}
	service, err := pgx.Connect(t.Context(), authserver)
	if err != nil {
		t.Fatal(harness.Redact(err.Error()))
	}
	defer func() { _ = service.Close(t.Context()) }()
	if _, err := service.Exec(t.Context(), "select account.make_event_months()"); err != nil {
		t.Errorf("make months of events: %v", err)
	}
	if n := shards(last); n == 0 {
		t.Errorf("the workers have no shard of %s", last)
	}
	dropped := -1
	err = service.QueryRow(t.Context(), "select account.drop_event_month(now())").Scan(&dropped)
	if n := shards("account.events_2020_01"); err != nil || dropped != 1 || n != 0 {
		t.Errorf("drop a month of events: %d events, %v; the workers have %d of its shards", dropped, err, n)
	}
}
