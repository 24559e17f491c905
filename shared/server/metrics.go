package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/pgxpoolprometheus"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/extra/redisprometheus/v9"
	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/shared/net/web"
)

// Prometheus metrics (client_golang) are in the registry of the process, and are served on a separate address, never on
// the public one. Our names begin with almoner_. M1: each label has a small, fixed set of values. An id, a path, a name
// or a text from a caller is never a value.

// A Registry holds the metrics of a process.
type Registry = prometheus.Registry

// NewRegistry makes a registry with metrics of the process and of Go's runtime. It cannot fail in a running program.
func NewRegistry() *Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// MetricsPath is the path of the metrics.
const MetricsPath = "/metrics"

const (
	answerWithin = 5 * time.Second
	askersAtOnce = 4
	headerWithin = 5 * time.Second
)

// serveMetrics serves the metrics at address until stop is called. It returns an error if it cannot listen there. An
// empty address serves nothing.
func serveMetrics(address string, registry *Registry, log *slog.Logger) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+MetricsPath, promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:            scrapeErrors{log},
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: askersAtOnce,
		Timeout:             answerWithin,
	}))
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: headerWithin,
		ReadTimeout:       headerWithin,
		WriteTimeout:      2 * answerWithin,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics server failed", "error", err)
		}
	}()
	log.Info("serving metrics", "address", listener.Addr().String())
	return func() {
		_ = server.Close()
		<-done
	}, nil
}

// CheckMetricsAddress returns what is wrong with an address for metrics, where taken are the addresses of the
// service. It refuses the same port on another address, because a small mistake would make it public.
func CheckMetricsAddress(address string, taken ...string) error {
	if address == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return errors.New("must be an address and a port, like 127.0.0.1:9090")
	}
	for _, other := range taken {
		if _, otherPort, err := net.SplitHostPort(other); err == nil && port == otherPort && port != "0" {
			return errors.New("must have another port than the service, because metrics must not be public")
		}
	}
	return nil
}

// scrapeErrors logs errors of a scrape.
type scrapeErrors struct{ log *slog.Logger }

func (s scrapeErrors) Println(words ...any) {
	s.log.WarnContext(context.Background(), "metrics request failed", "error", fmt.Sprint(words...))
}

// CountDeleted returns a function that counts deleted records by their kind.
func CountDeleted(registry *Registry) func(kind string, deleted int64) {
	total := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "almoner_retention_deleted_total",
		Help: "Records that were deleted because they were no longer needed.",
	}, []string{"kind"})
	registry.MustRegister(total)
	return func(kind string, deleted int64) { total.WithLabelValues(kind).Add(float64(deleted)) }
}

// httpMetrics count requests by the pattern of their route. They implement web.Watcher.
type httpMetrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inFlight prometheus.Gauge
}

func newHTTPMetrics(registry *Registry) *httpMetrics {
	h := &httpMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "almoner_http_requests_total",
			Help: "Requests by method, route and status class; none means that the connection was closed.",
		}, []string{"method", "route", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "almoner_http_request_duration_seconds", Help: "Request duration by route.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"route"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "almoner_http_requests_in_flight", Help: "Requests in progress.",
		}),
	}
	registry.MustRegister(h.requests, h.duration, h.inFlight)
	return h
}

func (h *httpMetrics) Begins(*http.Request) { h.inFlight.Inc() }

func (h *httpMetrics) Ends(r *http.Request, outcome web.Outcome) {
	h.inFlight.Dec()
	route := cmp.Or(outcome.Route, "none")
	h.requests.WithLabelValues(web.Method(r.Method), route, class(outcome.Status)).Inc()
	h.duration.WithLabelValues(route).Observe(outcome.Took.Seconds())
}

func class(status int) string {
	if status < 100 || status > 599 {
		return "none"
	}
	return strconv.Itoa(status/100) + "xx"
}

// WatchPostgres registers the metrics pgxpool_… of a pool. Their label pool is its name.
func WatchPostgres(registry *Registry, name string, stat func() *pgxpool.Stat) {
	registry.MustRegister(pgxpoolprometheus.NewCollector(postgresPool(stat), map[string]string{"pool": name}))
}

// WatchRedis registers the metrics redis_pool_… of a client.
func WatchRedis(registry *Registry, rdb redisprometheus.StatGetter) {
	registry.MustRegister(redisprometheus.NewCollector("redis", "", rdb))
}

type postgresPool func() *pgxpool.Stat

func (p postgresPool) Stat() *pgxpool.Stat { return p() }

// gaugesTimeout limits the query for the values of gauges.
const gaugesTimeout = time.Second

// A SetGauge sets a gauge with the values of its labels.
type SetGauge func(gauge *prometheus.Desc, value float64, labels ...string)

// WatchGauges registers gauges whose values are queried at each scrape. read sets them all, or none if they cannot be
// read, since 0 would be wrong.
func WatchGauges(registry *Registry, read func(context.Context, SetGauge), gauges ...*prometheus.Desc) {
	registry.MustRegister(queriedGauges{read, gauges})
}

type queriedGauges struct {
	read   func(context.Context, SetGauge)
	gauges []*prometheus.Desc
}

func (q queriedGauges) Describe(out chan<- *prometheus.Desc) {
	for _, gauge := range q.gauges {
		out <- gauge
	}
}

func (q queriedGauges) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), gaugesTimeout)
	defer cancel()
	q.read(ctx, func(gauge *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(gauge, prometheus.GaugeValue, value, labels...)
	})
}

// storeMetrics measure the operations of PostgreSQL and Redis.
type storeMetrics struct {
	duration *prometheus.HistogramVec
	failures *prometheus.CounterVec
}

func newStoreMetrics(registry *Registry) *storeMetrics {
	s := &storeMetrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "almoner_store_duration_seconds",
			Help:    "Duration of store operations: SQL statements by their first word, and Redis commands.",
			Buckets: []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
		}, []string{"store", "operation"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "almoner_store_failures_total",
			Help: "Operations that failed because the store was unavailable, too slow or faulty.",
		}, []string{"store"}),
	}
	registry.MustRegister(s.duration, s.failures)
	for _, store := range []string{postgres, redis} {
		s.failures.WithLabelValues(store)
	}
	return s
}

const (
	postgres = "postgres"
	redis    = "redis"
)

func (s *storeMetrics) note(store, operation string, began time.Time, failed bool) {
	s.duration.WithLabelValues(store, operation).Observe(time.Since(began).Seconds())
	if failed {
		s.failures.WithLabelValues(store).Inc()
	}
}

// statements measures the statements to PostgreSQL. It is a pgx.QueryTracer, BatchTracer and ConnectTracer.
type statements struct{ stores *storeMetrics }

type statementKey struct{}

type statement struct {
	operation string
	began     time.Time
}

func (s statements) begin(ctx context.Context, operation string) context.Context {
	return context.WithValue(ctx, statementKey{}, &statement{operation, time.Now()})
}

func (s statements) end(ctx context.Context, err error) {
	if ended, ok := ctx.Value(statementKey{}).(*statement); ok {
		s.stores.note(postgres, ended.operation, ended.began, postgresFailed(err))
	}
}

func (s statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return s.begin(ctx, operation(data.SQL))
}

func (s statements) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	s.end(ctx, data.Err)
}

func (s statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return s.begin(ctx, "batch")
}

// TraceBatchQuery implements pgx.BatchTracer. The round trip counts once.
func (s statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (s statements) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	s.end(ctx, data.Err)
}

func (s statements) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	return s.begin(ctx, "connect")
}

func (s statements) TraceConnectEnd(ctx context.Context, data pgx.TraceConnectEndData) {
	s.end(ctx, data.Err)
}

// operation returns the first word of a statement if it is a known one, or "other".
func operation(sql string) string {
	sql = strings.TrimSpace(sql)
	end := strings.IndexFunc(sql, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') })
	if end < 0 {
		end = len(sql)
	}
	switch word := strings.ToLower(sql[:min(end, len("savepoint"))]); word {
	case "select", "insert", "update", "delete", "with", "begin", "commit", "rollback", "savepoint", "set":
		return word
	}
	return "other"
}

// postgresFailed reports whether the server failed, as opposed to a refused statement such as a violated constraint.
func postgresFailed(err error) bool {
	if err == nil || errors.Is(err, pgx.ErrNoRows) || errors.Is(err, context.Canceled) {
		return false
	}
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return true // no response from the server
	}
	switch pgErr.Code[:min(2, len(pgErr.Code))] {
	case "08", "53", "55", "57", "58", "XX": // connections, resources, locks, shutdown and time, system, internal
		return true
	}
	return false
}

// commands measures the commands to Redis. It is a goredis.Hook.
type commands struct{ stores *storeMetrics }

func (c commands) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		began := time.Now()
		connection, err := next(ctx, network, address)
		c.stores.note(redis, "connect", began, err != nil)
		return connection, err
	}
}

func (c commands) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, command goredis.Cmder) error {
		began := time.Now()
		err := next(ctx, command)
		c.stores.note(redis, commandName(command), began, redisFailed(err))
		return err
	}
}

func (c commands) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, all []goredis.Cmder) error {
		began := time.Now()
		err := next(ctx, all)
		c.stores.note(redis, "pipeline", began, redisFailed(err))
		return err
	}
}

// commandName returns the name of a command that the services send, or "other".
func commandName(command goredis.Cmder) string {
	switch name := command.Name(); name {
	case "evalsha", "eval", "get", "set", "del", "ping", "hello", "auth", "script", "cluster", "info":
		return name
	}
	return "other"
}

// redisFailed reports whether Redis failed, as opposed to a missing key or an unknown script.
func redisFailed(err error) bool {
	return err != nil && !errors.Is(err, goredis.Nil) && !errors.Is(err, context.Canceled) &&
		!goredis.HasErrorPrefix(err, "NOSCRIPT")
}
