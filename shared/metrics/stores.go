package metrics

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	goredis "github.com/redis/go-redis/v9"
)

// Stores measures what is asked of PostgreSQL and Redis.
type Stores struct {
	duration *prometheus.HistogramVec
	failures *prometheus.CounterVec
}

// NewStores makes the metrics of the stores.
func NewStores(registry *Registry) *Stores {
	s := &Stores{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "almoner_store_duration_seconds",
			Help:    "How long a store took, by operation: the first word of a statement, or the command.",
			Buckets: []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
		}, []string{"store", "operation"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "almoner_store_failures_total",
			Help: "Operations that a store did not carry out because it was away, too slow or unwell.",
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

func (s *Stores) note(store, operation string, began time.Time, failed bool) {
	s.duration.WithLabelValues(store, operation).Observe(time.Since(began).Seconds())
	if failed {
		s.failures.WithLabelValues(store).Inc()
	}
}

// Postgres measures statements.
func (s *Stores) Postgres() interface {
	pgx.QueryTracer
	pgx.BatchTracer
	pgx.ConnectTracer
} {
	return statements{s}
}

type statements struct{ stores *Stores }

type statementKey struct{}

type statement struct {
	operation string
	began     time.Time
}

func (t statements) begin(ctx context.Context, operation string) context.Context {
	return context.WithValue(ctx, statementKey{}, &statement{operation, time.Now()})
}

func (t statements) end(ctx context.Context, err error) {
	if one, ok := ctx.Value(statementKey{}).(*statement); ok {
		t.stores.note(postgres, one.operation, one.began, postgresFailed(err))
	}
}

// TraceQueryStart is pgx.QueryTracer's.
func (t statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return t.begin(ctx, operation(data.SQL))
}

// TraceQueryEnd is pgx.QueryTracer's.
func (t statements) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	t.end(ctx, data.Err)
}

// TraceBatchStart is pgx.BatchTracer's.
func (t statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return t.begin(ctx, "batch")
}

// TraceBatchQuery is pgx.BatchTracer's: the trip counts once.
func (t statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd is pgx.BatchTracer's.
func (t statements) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	t.end(ctx, data.Err)
}

// TraceConnectStart is pgx.ConnectTracer's.
func (t statements) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	return t.begin(ctx, "connect")
}

// TraceConnectEnd is pgx.ConnectTracer's.
func (t statements) TraceConnectEnd(ctx context.Context, data pgx.TraceConnectEndData) {
	t.end(ctx, data.Err)
}

// operation is the first word of a statement, where it is one that there is.
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

// postgresFailed tells a server that did not do its work from one that refused a statement, as a constraint does.
func postgresFailed(err error) bool {
	if err == nil || errors.Is(err, pgx.ErrNoRows) || errors.Is(err, context.Canceled) {
		return false
	}
	var said *pgconn.PgError
	if !errors.As(err, &said) {
		return true // it did not get as far as an answer
	}
	switch said.Code[:min(2, len(said.Code))] {
	case "08", "53", "55", "57", "58", "XX": // connections, resources, locks, shutdown and time, system, internal
		return true
	}
	return false
}

// Redis measures commands.
func (s *Stores) Redis() goredis.Hook { return commands{s} }

type commands struct{ stores *Stores }

// DialHook is goredis.Hook's.
func (c commands) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		began := time.Now()
		connection, err := next(ctx, network, address)
		c.stores.note(redis, "connect", began, err != nil)
		return connection, err
	}
}

// ProcessHook is goredis.Hook's.
func (c commands) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, command goredis.Cmder) error {
		began := time.Now()
		err := next(ctx, command)
		c.stores.note(redis, commandName(command), began, redisFailed(err))
		return err
	}
}

// ProcessPipelineHook is goredis.Hook's.
func (c commands) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, all []goredis.Cmder) error {
		began := time.Now()
		err := next(ctx, all)
		c.stores.note(redis, "pipeline", began, redisFailed(err))
		return err
	}
}

// commandName is one of the commands that the services send.
func commandName(command goredis.Cmder) string {
	switch name := command.Name(); name {
	case "evalsha", "eval", "get", "set", "del", "ping", "hello", "auth", "script", "cluster", "info":
		return name
	}
	return "other"
}

// redisFailed tells a Redis that is away or unwell from one that says no such key, or that it does not know a script
// yet.
func redisFailed(err error) bool {
	return err != nil && !errors.Is(err, goredis.Nil) && !errors.Is(err, context.Canceled) &&
		!goredis.HasErrorPrefix(err, "NOSCRIPT")
}
