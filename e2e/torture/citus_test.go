package torture

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

const (
	undisturbed  = 5 * time.Second  // how long clients work undisturbed
	outageTime   = 3 * time.Second  // how long the killed worker is gone
	recoveryTime = 20 * time.Second // how long requests may fail after the worker has returned
)

// TestCitus_RebalanceAndLostWorkerLoseNothing distributes a running installation over a coordinator and two workers.
// While clients refresh, list and write, all shards move to one worker and back, and a worker is killed and started
// again. Few requests may fail with 503 while shards move, and any number while the worker is gone. No acknowledged
// change is lost, each frequent statement is one task on one node, and months of events are made and dropped on all
// nodes.
func TestCitus_RebalanceAndLostWorkerLoseNothing(t *testing.T) {
	onlyLong(t, "citus", "it needs the extension citus")
	summary := "not finished"
	harness.Record(t, "a coordinator and two workers: %s", harness.Deferred[string](func() string { return summary }))
	cluster := harness.StartCitus(t, 2, false)
	running := harness.Private(t, harness.Options{Authservers: 2, Resources: 2, Settings: busyMachine()})
	config, err := pgx.ParseConfig(running.DatabaseURL)
	must(t, err)
	var notices strings.Builder
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { notices.WriteString(n.Message + "\n") }
	admin, err := pgx.ConnectConfig(t.Context(), config)
	must(t, err)
	t.Cleanup(func() { _ = admin.Close(context.WithoutCancel(t.Context())) })
	run := func(text string) {
		t.Helper()
		if _, err := admin.Exec(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	run("create extension if not exists pg_stat_statements")
	run("select pg_stat_statements_reset()")
	t.Cleanup(func() { logCauses(t, running.LogDir()) })
	w := newCitusWork(t, harness.NewProduct(t, running, &seenSecrets))
	w.useWorkspaceAt(admin, cluster.Nodes[1]) // not the first node of the URL for refreshes
	w.start(4)
	time.Sleep(undisturbed)
	w.stop()
	// The statements of workers cannot be read: a query of pg_stat_statements there ends with an invalid byte sequence.
	queries := frequentStatements(t, admin)
	harness.RefreshAtWorkers(t, cluster, running.DatabaseURL, running.Authservers...)
	w.restart()
	time.Sleep(undisturbed)
	wantsRefreshesAt(t, cluster.Nodes[1])
	w.moving.Store(true)
	for _, sql := range moveAwayAndBack {
		run(sql)
	}
	moved := w.answered.Load()
	w.moving.Store(false)
	w.disturbed.Store(true)
	cluster.Nodes[2].Kill()
	time.Sleep(outageTime)
	must(t, cluster.Nodes[2].Restart(t.Context()))
	time.Sleep(recoveryTime)
	w.disturbed.Store(false)
	time.Sleep(undisturbed)
	w.stop()
	w.check()
	explained := checkTasks(t, admin, &notices, append(queries, frequentStatements(t, admin)...), w.ws.Workspace.ID)
	checkEventMonths(t, admin, running.Authservers[0].Setting("ALMONER_DATABASE_URL"), w.ws.Workspace.ID)
	if delayed := w.delayed.Load(); delayed > w.answered.Load()/100 {
		t.Errorf("%d requests were refused while shards moved", delayed)
	}
	summary = fmt.Sprintf("%d requests answered, %d of them before the shards had moved "+
		"away and back, which refused %d with 503; %d refused with 503 during and after the loss of a worker for %v; "+
		"%d frequent statements, each one task",
		w.answered.Load(), moved, w.delayed.Load(), w.refused.Load(), outageTime, explained)
}

// wantsRefreshesAt checks that authserver is connected to a worker as the role for refreshes.
func wantsRefreshesAt(t *testing.T, worker *localstore.Postgres) {
	t.Helper()
	const connected = `select exists (select from pg_stat_activity
		where usename = 'refreshes' and application_name = 'almoner-authserver')::text`
	if command(t, worker, connected) != "true" {
		t.Error("refreshes do not connect to the worker that has the grants")
	}
}

// busyMachine returns settings with which the services wait longer for their stores, so that a busy machine causes no
// failures.
func busyMachine() map[string]string {
	return map[string]string{"ALMONER_STORE_WAIT": testkit.SilentStoreWait.String()}
}

// logCauses logs the different errors of failed requests if the test has failed.
func logCauses(t *testing.T, logs string) {
	if !t.Failed() {
		return
	}
	causes := map[string]int{}
	paths, _ := filepath.Glob(filepath.Join(logs, "*.log"))
	for _, path := range paths {
		content, _ := os.ReadFile(path)
		for line := range bytes.Lines(content) {
			var entry struct{ Level, Msg, Error, Cause string }
			if json.Unmarshal(line, &entry) == nil && entry.Level == "ERROR" && entry.Error+entry.Cause != "" {
				causes[entry.Msg+": "+entry.Error+entry.Cause]++
			}
		}
	}
	for cause, times := range causes {
		t.Logf("%d times: %s", times, harness.Redact(cause))
	}
}

// citusWork runs clients that refresh, list and write.
type citusWork struct {
	t         *testing.T
	p         *harness.Product
	ws        harness.TestWorkspace
	ctx       context.Context
	stop      func()
	clients   sync.WaitGroup
	moving    atomic.Bool // shards move
	disturbed atomic.Bool // a node is gone, or has just returned
	answered  atomic.Int64
	delayed   atomic.Int64 // refused because a shard that moved was locked
	refused   atomic.Int64
	created   sync.Map // the id of each acknowledged programme
	requests  []func() int
	chains    []func() int // for each chain of refresh tokens, a function that refreshes once more
}

func newCitusWork(t *testing.T, p *harness.Product) *citusWork {
	w := &citusWork{t: t, p: p, ws: p.NewWorkspace(t)}
	w.restart()
	return w
}

// useWorkspaceAt makes workspaces until the grants of one are at a worker.
func (w *citusWork) useWorkspaceAt(admin *pgx.Conn, worker *localstore.Postgres) {
	w.t.Helper()
	for range 100 {
		var port string
		must(w.t, admin.QueryRow(w.t.Context(), `select n.nodeport::text
			from pg_dist_placement p join pg_dist_node n using (groupid)
			where p.shardid = get_shard_id_for_distribution_column('account.grants', $1::text::uuid)`,
			w.ws.Workspace.ID).Scan(&port))
		if address, err := url.Parse(worker.URL); err == nil && address.Port() == port {
			return
		}
		w.ws = w.p.NewWorkspace(w.t)
	}
	w.t.Fatal("the worker has no grants")
}

// restart lets the requests of work begin again after stop.
func (w *citusWork) restart() {
	ctx, cancel := context.WithCancel(w.t.Context())
	w.ctx = ctx
	w.stop = func() { cancel(); w.clients.Wait() }
	for _, do := range w.requests {
		w.work(do)
	}
}

// work repeats a request until the end. do returns its status.
func (w *citusWork) work(do func() int) {
	w.clients.Go(func() {
		for w.ctx.Err() == nil {
			moving, disturbed := w.moving.Load(), w.disturbed.Load()
			status := do()
			moving, disturbed = moving || w.moving.Load(), disturbed || w.disturbed.Load()
			switch {
			case status < http.StatusBadRequest:
				w.answered.Add(1)
			case status == http.StatusServiceUnavailable && moving:
				w.delayed.Add(1)
			case status == http.StatusServiceUnavailable && disturbed:
				w.refused.Add(1)
				time.Sleep(100 * time.Millisecond)
			default:
				w.t.Errorf("a request got status %d", status)
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

// begin repeats a request, also after restart.
func (w *citusWork) begin(do func() int) {
	w.requests = append(w.requests, do)
	w.work(do)
}

func (w *citusWork) start(clients int) {
	connector, owner := w.ws.Connector(w.t, harness.ReadProgrammes), w.p.Person(w.t, w.ws.Owner)
	api := w.p.In(w.ws.Workspace, w.ws.Token)
	for range clients {
		tokens := connector.Connect(w.t, owner)
		refresh := func() int {
			answer, err := connector.TryPost(w.t, connector.RefreshForm(tokens.RefreshToken))
			if err == nil && answer.Status == http.StatusOK {
				tokens = answer.Tokens(w.t)
			}
			return answer.Status
		}
		w.chains = append(w.chains, refresh)
		w.begin(refresh)
		w.begin(func() int {
			answer, _ := api.Try(w.t, http.MethodGet, harness.ListPath, "", "")
			return answer.Status
		})
		w.begin(func() int {
			answer, _ := tryWrite(w.t, api)
			if answer.Status == http.StatusCreated {
				w.created.Store(answer.Object(w.t)["id"], true)
			}
			return answer.Status
		})
	}
}

// check checks that each acknowledged programme is stored and that no chain of refresh tokens is broken.
func (w *citusWork) check() {
	w.t.Helper()
	for _, refresh := range w.chains {
		if status := refresh(); status != http.StatusOK {
			w.t.Errorf("the last refresh of a client: %d", status)
		}
	}
	stored, api, query := map[any]bool{}, w.p.In(w.ws.Workspace, w.ws.Token), "?limit=200&fields=id"
	for query != "" {
		page := api.Get(w.t, harness.ListPath+query).Wants(w.t, http.StatusOK).Object(w.t)
		for _, programme := range page["data"].([]any) {
			stored[programme.(map[string]any)["id"]] = true
		}
		query = ""
		if next, _ := page["meta"].(map[string]any)["nextCursor"].(string); next != "" {
			query = "?limit=200&fields=id&cursor=" + next
		}
	}
	acknowledged := 0
	for id := range w.created.Range {
		acknowledged++
		if !stored[id] {
			w.t.Errorf("the programme %v was acknowledged and is lost", id)
		}
	}
	// A write that was refused with 503 may have been committed.
	most := acknowledged + int(w.refused.Load()+w.delayed.Load())
	if acknowledged == 0 || len(stored) > most {
		w.t.Errorf("%d programmes are stored, %d were acknowledged", len(stored), acknowledged)
	}
}

var (
	constantInterval = regexp.MustCompile(`interval (\$\d+)`)

	taskCount = regexp.MustCompile(`Task Count: (\d+)`)
	// manyNodes matches statements that read the shards of all workspaces. They run at most once a second and, the
	// search for submissions to process, for each workspace that has some.
	manyNodes = regexp.MustCompile(`(?i)event_sequences s where s.(tenant_id = any|behind)|` +
		`from resource.submissions where tenant_id > `)
)

// frequentStatements returns the frequent statements that the services have sent to the coordinator. The statements
// that nodes send to each other name shards.
func frequentStatements(t *testing.T, admin *pgx.Conn) []string {
	t.Helper()
	rows, err := admin.Query(t.Context(), `
		select query from pg_stat_statements s join pg_database d on d.oid = s.dbid
		join pg_roles r on r.oid = s.userid
		where d.datname = current_database() and r.rolname <> current_user and calls >= 20
			and query ~* '^\s*(with|select|insert|update|delete)\M' and query !~ '_\d{6}\M'
			and query ~ '(programmes|grants|submissions|events|keys)'`)
	must(t, err)
	queries, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	return queries
}

// checkTasks explains the statements and returns their number. Each must be one task. Citus must plan the steps of
// refreshes as statements about one row of one table, whose plans it keeps; it says so in a notice.
func checkTasks(
	t *testing.T, admin *pgx.Conn, notices *strings.Builder, queries []string, workspace string,
) (explained int) {
	t.Helper()
	refreshes := 0
	_, _ = admin.Exec(t.Context(), "select count(*) from account.grants") // notices lost connections to nodes
	if _, err := admin.Exec(t.Context(), "set search_path = account, resource, pg_catalog"); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Exec(t.Context(), "set client_min_messages = debug2"); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = admin.Exec(t.Context(), "reset client_min_messages") }()
	for _, query := range slices.Compact(slices.Sorted(slices.Values(queries))) {
		notices.Reset()
		plan, err := explain(t.Context(), admin, query, workspace)
		if err != nil {
			if strings.Contains(query, "update account.grants") {
				t.Errorf("not explained: %v\n%s", err, query)
			}
			t.Logf("not explained: %v\n%s", err, query)
			continue
		}
		for _, count := range taskCount.FindAllStringSubmatch(plan, -1) {
			if n, _ := strconv.Atoi(count[1]); n > 1 && !manyNodes.MatchString(query) {
				t.Errorf("%d tasks:\n%s\n%s", n, query, plan)
			}
		}
		explained++
		if strings.Contains(query, "update account.grants") {
			refreshes++
			if !strings.Contains(notices.String(), "fast-path router query") {
				t.Errorf("not planned as a statement about one row:\n%s\n%s", query, plan)
			}
		}
	}
	if explained < 4 || refreshes == 0 {
		t.Errorf("%d statements were explained, %d of them steps of refreshes", explained, refreshes)
	}
	return explained
}

// explain returns the plan of a statement, with the workspace as each of its UUIDs.
func explain(ctx context.Context, admin *pgx.Conn, query, workspace string) (plan string, err error) {
	query = constantInterval.ReplaceAllString(query, "$1::interval") // pg_stat_statements replaces constants
	if _, err := admin.Exec(ctx, "prepare hot as "+query); err != nil {
		return "", err
	}
	defer func() { _, _ = admin.Exec(ctx, "deallocate hot") }()
	var types []string
	err = admin.QueryRow(ctx, "select parameter_types::text[] from pg_prepared_statements where name = 'hot'").
		Scan(&types)
	if err != nil {
		return "", err
	}
	var values []string
	for _, kind := range types {
		value := "1"
		switch {
		case kind == "uuid":
			value = workspace
		case kind == "interval":
			value = "1 second"
		case kind == "uuid[]":
			value = "{" + workspace + "}"
		case strings.HasSuffix(kind, "[]"), kind == "jsonb":
			value = "{}"
		case kind == "date", strings.HasPrefix(kind, "timestamp"):
			value = "2026-01-01"
		case kind == "bytea":
			value = `\x00`
		}
		values = append(values, "'"+value+"'::"+kind)
	}
	text := "explain (costs off) execute hot"
	if len(values) > 0 {
		text += "(" + strings.Join(values, ", ") + ")"
	}
	rows, err := admin.Query(ctx, text, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return "", err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return strings.Join(lines, "\n"), err
}
