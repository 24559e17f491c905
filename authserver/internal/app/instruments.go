package app

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"

	grantmetrics "github.com/almonerhq/almoner/authserver/internal/metrics"
	"github.com/almonerhq/almoner/shared/metrics"
	"github.com/almonerhq/almoner/shared/tracing"
	"github.com/almonerhq/almoner/shared/web"
)

// instruments are the metrics and traces of the process.
type instruments struct {
	registry *metrics.Registry
	http     *metrics.HTTP
	stores   *metrics.Stores
	grants   *grantmetrics.OAuth
	traces   *tracing.Tracing
}

func newInstruments(ctx context.Context, settings tracing.Settings, log *slog.Logger) (instruments, error) {
	traces, err := tracing.Start(ctx, tracing.Options{Settings: settings, Service: "authserver"}, log)
	registry := metrics.NewRegistry()
	return instruments{
		registry: registry,
		http:     metrics.NewHTTP(registry),
		stores:   metrics.NewStores(registry),
		grants:   grantmetrics.New(registry),
		traces:   traces,
	}, err
}

// statements returns the tracers of queries to Postgres.
func (i instruments) statements() []pgx.QueryTracer {
	return append(i.traces.Postgres(), i.stores.Postgres())
}

// commands observes the commands to Redis.
func (i instruments) commands(rdb goredis.UniversalClient) error {
	rdb.AddHook(i.stores.Redis())
	return i.traces.Redis(rdb)
}

// requests returns the watchers of requests.
func (i instruments) requests() []web.Watcher { return append(i.traces.Watchers(), i.http) }
