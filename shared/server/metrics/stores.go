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

// Stores measures the operations of PostgreSQL and Redis.
type Stores struct {
	duration *prometheus.HistogramVec
	failures *prometheus.CounterVec
}

// NewStores makes the metrics of the stores.
func NewStores(registry *Registry) *Stores {
	s := &Stores{
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

func (s *Stores) note(store, operation string, began time.Time, failed bool) {
	s.duration.WithLabelValues(store, operation).Observe(time.Since(began).Seconds())
	if failed {
		s.failures.WithLabelValues(store).Inc()
	}
}

// Postgres returns a tracer that measures statements.
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

func (s statements) begin(ctx context.Context, operation string) context.Context {
	return context.WithValue(ctx, statementKey{}, &statement{operation, time.Now()})
}

func (s statements) end(ctx context.Context, err error) {
	if one, ok := ctx.Value(statementKey{}).(*statement); ok {
		s.stores.note(postgres, one.operation, one.began, postgresFailed(err))
	}
}

// TraceQueryStart implements pgx.QueryTracer.
func (s statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return s.begin(ctx, operation(data.SQL))
}

// TraceQueryEnd implements pgx.QueryTracer.
func (s statements) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	s.end(ctx, data.Err)
}

// TraceBatchStart implements pgx.BatchTracer.
func (s statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return s.begin(ctx, "batch")
}

// TraceBatchQuery implements pgx.BatchTracer. The round trip counts once.
func (s statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (s statements) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	s.end(ctx, data.Err)
}

// TraceConnectStart implements pgx.ConnectTracer.
func (s statements) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	return s.begin(ctx, "connect")
}

// TraceConnectEnd implements pgx.ConnectTracer.
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

// postgresFailed reports whether the server failed, as opposed to a refused statement such as a violated
// constraint.
func postgresFailed(err error) bool {
	if err == nil || errors.Is(err, pgx.ErrNoRows) || errors.Is(err, context.Canceled) {
		return false
	}
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return true // no response from the server
	}
	switch pgErr.Code[:min(2, len(pgErr.Code))] {
	case "08", "53", "55", "57", "58", "XX": // connections, resources, locks, shutdown and time, system, internal
		return true
	}
	return false
}

// Redis returns a hook that measures commands.
func (s *Stores) Redis() goredis.Hook { return commands{s} }

type commands struct{ stores *Stores }

// DialHook implements goredis.Hook.
func (c commands) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		began := time.Now()
		connection, err := next(ctx, network, address)
		c.stores.note(redis, "connect", began, err != nil)
		return connection, err
	}
}

// ProcessHook implements goredis.Hook.
func (c commands) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, command goredis.Cmder) error {
		began := time.Now()
		err := next(ctx, command)
		c.stores.note(redis, commandName(command), began, redisFailed(err))
		return err
	}
}

// ProcessPipelineHook implements goredis.Hook.
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
