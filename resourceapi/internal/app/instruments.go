package app

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/metrics"
	"github.com/almonerhq/almoner/shared/tracing"
	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/store/redis"
)

// instruments are the metrics and traces of the service.
type instruments struct {
	registry *metrics.Registry
	http     *metrics.HTTP
	stores   *metrics.Stores
	traces   *tracing.Tracing
}

func newInstruments(ctx context.Context, settings tracing.Settings, log *slog.Logger) (instruments, error) {
	traces, err := tracing.Start(ctx, tracing.Options{Settings: settings, Service: "resourceapi"}, log)
	registry := metrics.NewRegistry()
	return instruments{
		registry: registry,
		http:     metrics.NewHTTP(registry),
		stores:   metrics.NewStores(registry),
		traces:   traces,
	}, err
}

// statements returns the tracers of Postgres statements.
func (i instruments) statements() []pgx.QueryTracer {
	return append(i.traces.Postgres(), i.stores.Postgres())
}

// commands instruments the Redis commands.
func (i instruments) commands(limits *redis.Limits) error {
	return limits.Watch(i.stores.Redis(), i.traces.Redis)
}

// requests returns the watchers of HTTP requests.
func (i instruments) requests() []web.Watcher { return append(i.traces.Watchers(), i.http) }
