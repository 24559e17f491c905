package server

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/net/web"
)

var must = testkit.Must

// page returns the response to a scrape, served and requested as Prometheus does.
func page(t *testing.T, registry *Registry) string {
	t.Helper()
	var log strings.Builder
	stop, err := serveMetrics("127.0.0.1:0", registry, slog.New(slog.NewTextHandler(&log, nil)))
	must(t, err)
	defer stop()
	_, address, _ := strings.Cut(strings.TrimSpace(log.String()), "address=")
	response, err := http.Get("http://" + address + MetricsPath)
	must(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(response.StatusCode, err)
	}
	return string(text)
}

func wants(t *testing.T, page string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(page, "\n"+line+"\n") {
			t.Errorf("missing: %s", line)
		}
	}
}

func TestHTTP_CountsRequestsByRoute(t *testing.T) {
	registry := NewRegistry()
	inside := ""
	lastResort := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	handler := web.Observe(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/things/1", "/things/2":
			web.RecordRoute(r.Context(), "/things/{id}")
			inside = page(t, registry)
		case "/panic":
			panic("boom")
		case "/gone":
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}), slog.New(slog.DiscardHandler), lastResort, newHTTPMetrics(registry))
	serve := func(method, path string) {
		defer func() { _ = recover() }() // http.ErrAbortHandler
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, path, nil))
	}
	for _, path := range []string{"/things/1", "/things/2", "/panic", "/secret-7", "/gone"} {
		serve("GET", path)
	}
	serve("BREW", "/")
	after := page(t, registry)
	wants(t, inside, "almoner_http_requests_in_flight 1")
	wants(t, after, `almoner_http_requests_total{method="GET",route="/things/{id}",status="2xx"} 2`,
		`almoner_http_requests_total{method="GET",route="none",status="5xx"} 1`,
		`almoner_http_requests_total{method="GET",route="none",status="4xx"} 1`,
		`almoner_http_requests_total{method="GET",route="none",status="none"} 1`,
		`almoner_http_requests_total{method="other",route="none",status="4xx"} 1`,
		`almoner_http_request_duration_seconds_count{route="/things/{id}"} 2`, "almoner_http_requests_in_flight 0")
	if strings.Contains(after, "secret-7") || strings.Contains(after, "BREW") {
		t.Error("a label contains text from a caller")
	}
	if !strings.Contains(after, "\ngo_goroutines ") || !strings.Contains(after, "\nprocess_open_fds ") {
		t.Error("metrics of the process are missing")
	}
}

func TestStores_MeasuresOperationsAndFailures(t *testing.T) {
	t.Parallel()
	registry, database, server := NewRegistry(), testkit.NewDatabase(t), testkit.NewRedis(t)
	stores := newStoreMetrics(registry)
	config, err := pgxpool.ParseConfig(database.Owner)
	must(t, err)
	config.ConnConfig.Tracer = statements{stores}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	must(t, err)
	defer pool.Close()
	options, err := goredis.ParseURL(server.URL)
	must(t, err)
	options.MaxRetries, options.DialerRetries = -1, 1
	rdb := goredis.NewClient(options)
	defer func() { _ = rdb.Close() }()
	rdb.AddHook(commands{stores})
	WatchPostgres(registry, "requests", pool.Stat)
	WatchRedis(registry, rdb)

	ctx := t.Context()
	for _, sql := range []string{
		"create temporary table t (n int primary key)", "insert into t values (1)", "insert into t values (1)",
		" SELECT 1", "nonsense-42",
	} {
		_, _ = pool.Exec(ctx, sql)
	}
	if err := rdb.Get(ctx, "nothing").Err(); !errors.Is(err, goredis.Nil) {
		t.Fatal(err)
	}
	_ = rdb.Do(ctx, "object", "freq", "nothing").Err()
	well := page(t, registry)
	wants(t, well, `almoner_store_duration_seconds_count{operation="insert",store="postgres"} 2`,
		`almoner_store_duration_seconds_count{operation="select",store="postgres"} 1`,
		`almoner_store_duration_seconds_count{operation="other",store="postgres"} 2`,
		`almoner_store_duration_seconds_count{operation="get",store="redis"} 1`,
		`almoner_store_failures_total{store="postgres"} 0`, `pgxpool_idle_conns{pool="requests"} 1`,
		"redis_pool_conn_idle_current 1")

	_, _ = pool.Exec(ctx, "set statement_timeout = '5ms'")
	_, _ = pool.Exec(ctx, "select pg_sleep(10)")
	server.Stop()
	_ = rdb.Get(ctx, "nothing").Err()
	unwell := page(t, registry)
	wants(t, unwell, `almoner_store_failures_total{store="postgres"} 1`)
	if strings.Contains(unwell, `almoner_store_failures_total{store="redis"} 0`) {
		t.Error("a stopped Redis is not counted as a failure")
	}
}

func TestCheckMetricsAddress_RefusesPortOfService(t *testing.T) {
	good := []string{"", "127.0.0.1:9090", ":9090"}
	bad := []string{"127.0.0.1:8081", ":8081", "[::1]:8081", "9090", "127.0.0.1:"}
	for _, address := range append(bad, good...) {
		err := CheckMetricsAddress(address, "0.0.0.0:8081", "")
		if accepted := err == nil; accepted != slices.Contains(good, address) {
			t.Errorf("%q: %v", address, err)
		}
	}
	stop, err := serveMetrics("", NewRegistry(), slog.New(slog.DiscardHandler))
	must(t, err)
	stop()
	if _, err := serveMetrics("256.0.0.1:1", NewRegistry(), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("no error for an address that cannot be used")
	}
}
