package tracing

import (
	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/extra/redisotel/v9"
	goredis "github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric/noop"
)

// Postgres returns tracers that make a span for each statement with its text, which contains no values (T1).
// It returns none if tracing is off.
func (t *Tracing) Postgres() []pgx.QueryTracer {
	if t == nil {
		return nil
	}
	return []pgx.QueryTracer{otelpgx.NewTracer(
		otelpgx.WithTracerProvider(t.provider), otelpgx.WithMeterProvider(noop.NewMeterProvider()),
		otelpgx.WithDisableConnectionDetailsInAttributes())}
}

// Redis makes a span for each command with its name only (T1).
func (t *Tracing) Redis(client goredis.UniversalClient) error {
	if t == nil || client == nil {
		return nil
	}
	return redisotel.InstrumentTracing(client,
		redisotel.WithTracerProvider(t.provider), redisotel.WithDBStatement(false), redisotel.WithCallerEnabled(false))
}
