package bench

import (
	"context"
	"flag"
	"math/rand/v2"
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/e2e/harness"
)

var many = flag.Int("many", 1_000_000,
	"how many rows of each kind there are in the part growth, and ten times as many as workspaces")

// TestGrowth compares an installation with little data and one with much data, in turn.
func TestGrowth(t *testing.T) {
	r := begin(t, "growth")
	if testing.Short() {
		*many = min(*many, 20_000)
	}
	little, much := scale{1000, 1000, 10, 1000}, scale{*many, *many, *many / 10, *many}
	var stacks []*seededStack
	var loads []load
	for _, size := range []scale{little, much} {
		running := harness.Private(t, harness.Options{Durable: true})
		name := map[bool]string{true: "little", false: "much"}[size == little]
		// Without a login, which would dominate the memory peak.
		e := newSeededStack(t, benchOf(t, running, accountOf(running, name), resourcesOf(running, name)), running, size)
		stacks, loads = append(stacks, e), append(loads, e.loads()...)
	}
	all, order := measureAll(t, inTurn(loads), []int{32})
	r.growth(t, all, order, stacks[0], stacks[1])
	r.rows(t, stacks)
	r.write(t)
}

const listByStatus = "list of 50, by status"

func (e *seededStack) loads() []load {
	pat := e.product.Demo.Tokens.Owner
	return []load{
		{what: refreshing, at: e.account, worker: e.refreshAny},
		{what: listPAT, at: e.lists, worker: e.list(e.lists, pat)},
		{
			what:   listByStatus,
			at:     e.lists,
			worker: listOf(e.lists, e.demoWorkspaces[e.lists.url], pat, "?status=active"),
		},
	}
}

// refreshAny makes each connection refresh its grants in random order, so that caches of recent requests do not help.
func (e *seededStack) refreshAny(connection int) (makeRequest, takeBody) {
	const connections = 32
	grant := 0
	return func() *http.Request {
			grant = connection + connections*rand.IntN(e.grants/connections)
			e.of.Lock()
			token := e.refreshed[grant]
			e.of.Unlock()
			if token == "" {
				token = e.refreshToken(grant)
			}
			form := e.connector.RefreshForm(token)
			form.Set("client_id", id("client", e.workspace(grant)).String())
			return e.token(e.account, form)
		}, func(body []byte) error {
			e.of.Lock()
			defer e.of.Unlock()
			e.refreshed[grant] = refreshTokenIn(body)
			return nil
		}
}

// walOfARefresh returns the number of WAL bytes that Postgres writes for a refresh, right after a checkpoint.
func (e *seededStack) walOfARefresh(t *testing.T) float64 {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	db, err := pgx.Connect(ctx, e.running.Postgres.URL)
	must(t, err)
	defer func() { _ = db.Close(ctx) }()
	refresh := e.loads()[0]
	if e.grants <= 1000 {
		refresh.run(t, 32, *each) // modifies every page
	} else {
		_, err = db.Exec(ctx, "checkpoint")
		must(t, err)
	}
	written := func() (bytes float64) {
		must(t, db.QueryRow(ctx, "select (pg_current_wal_insert_lsn() - '0/0')::float8").Scan(&bytes))
		return bytes
	}
	before := written()
	refreshed := refresh.run(t, 32, *each)
	return (written() - before) / float64(len(refreshed.latencies))
}

func (r *report) growth(t *testing.T, all results, order []key, little, much *seededStack) {
	r.line("Two installations, which take turns, %d rounds of %s each at 32 connections; generator and stores "+
		"included. Postgres has 128 MB of", *rounds, *each)
	r.line("shared buffers in both, as it has by itself. A refresh is of any grant, by chance.\n")
	r.line("- little: %s\n- much: %s\n", little.scale, much.scale)
	r.table(all, order)
	for _, what := range []string{refreshing, listPAT, listByStatus} {
		ratio := all.ratio(key{what, "much", 32}, key{what, "little", 32})
		r.wants(what+", much of little", "at least 0.85", ratio, "", ratio >= 0.85)
	}
	r.wants("Redis, a live grant", "at most 450 bytes", much.grantBytesRedis, " bytes", much.grantBytesRedis <= 450)
	r.wants("Postgres, a live grant with its indexes", "at most 700 bytes", much.grantBytesPostgres, " bytes",
		much.grantBytesPostgres <= 700)
	r.line("\nIn Postgres an event of the audit log, such as a consent, takes %.0f bytes more, indexes included. A "+
		"refresh writes %.0f bytes of its log", much.auditBytes, much.walOfARefresh(t))
	r.line("(WAL) right after a checkpoint, where every page is touched for the first time and written whole, and "+
		"%.0f bytes where it is not.", little.walOfARefresh(t))
	for _, service := range []struct {
		name string
		at   target
	}{{"authserver", much.account}, {"resourceapi", much.lists}} {
		most := float64(harness.ProcessStatus(t, service.at.pids[0], "VmHWM:")) / 1024
		r.wants("most memory resident, "+service.name+", without logins", "below 80 MiB", most, " MiB", most < 80)
	}
}
