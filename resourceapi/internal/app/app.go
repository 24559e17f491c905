// Package app composes resourceapi from its parts.
//
// Only this package imports all of them. New builds the service; Run serves until its context ends.
package app

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/mux"

	"github.com/almonerhq/almoner/shared/brand"
	"github.com/almonerhq/almoner/shared/deprecation"
	"github.com/almonerhq/almoner/shared/metrics"
	"github.com/almonerhq/almoner/shared/profile"
	"github.com/almonerhq/almoner/shared/retention"
	"github.com/almonerhq/almoner/shared/seal"
	"github.com/almonerhq/almoner/shared/secretfile"
	"github.com/almonerhq/almoner/shared/standing"
	"github.com/almonerhq/almoner/shared/tracing"
	"github.com/almonerhq/almoner/shared/web"

	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/apidoc"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/events"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/mcp"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/me"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/wellknown"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/keys"
	"github.com/almonerhq/almoner/resourceapi/internal/list"
	queuemetrics "github.com/almonerhq/almoner/resourceapi/internal/metrics"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
	"github.com/almonerhq/almoner/resourceapi/internal/worker"
)

// An App is the service, ready to run.
type App struct {
	// Handler serves every request.
	Handler http.Handler

	modules  []module
	router   *mux.Router
	server   web.Server
	probes   workerProbes
	master   *secretfile.Keys
	log      *slog.Logger
	store    *postgres.Store
	usage    *standing.UsageRecorder
	keys     *keys.Source
	importer *worker.Poller
	eraser   *worker.Poller
	engage   *engageModule

	webhooks  webhookParts
	retention *retention.Store
	deleted   retention.Report

	profiles  string
	processes bool // whether Run also processes submissions and sends webhooks

	metrics  string // listen address of the metrics
	registry *metrics.Registry
	traces   *tracing.Tracing
}

// workerProbes are the health endpoints of a worker and their listen address.
type workerProbes struct {
	listen  string
	handler http.Handler
}

// New builds the service. It opens no connection, so it works while Postgres and the authorization server are down.
// The caller must close the App.
func New(ctx context.Context, c Config, log *slog.Logger) (*App, error) {
	masterKeys, err := seal.ParseKeys(c.Keys)
	if err != nil {
		return nil, fmt.Errorf("ALMONER_KEYS: %w", err)
	}
	cursors, err := programme.NewCursors(masterKeys)
	if err != nil {
		return nil, err
	}
	proxies, err := web.ParseProxies(c.Proxies)
	if err != nil {
		return nil, err
	}
	shown, err := c.Options.Read()
	if err != nil {
		return nil, err
	}
	watch, err := newInstruments(ctx, c.Settings, log)
	if err != nil {
		return nil, err
	}
	store, err := postgres.OpenFromSource(ctx,
		secretfile.Postgres("ALMONER_DATABASE_URL", c.files.database, c.DatabaseURL, log),
		postgres.Limits{Connections: c.Connections, Wait: c.StoreWait, Search: c.searchTime}, watch.statements()...)
	if err != nil {
		return nil, err
	}
	usage := store.UsageRecorder(log)
	source := keys.NewSource(c.JWKSURL, log, time.Now)
	importer := worker.NewImporter(store, log)
	atGate := gate.Deps{
		Resource:  gate.API,
		BaseURL:   c.BaseURL,
		Tokens:    keys.NewVerifier(source, c.BaseURL),
		Standings: store,
		RecordUse: usage.Record,
		Log:       log,
		Bounds:    gate.NewBounds(store.SearchesPerWorkspace()),
	}
	guard := gate.New(atGate)
	assistants, err := newAssistants(c, shown, atGate, store, cursors)
	if err != nil {
		return nil, err
	}
	lists, err := list.NewCursors(masterKeys)
	if err != nil {
		return nil, err
	}
	hooks, err := newWebhooks(c, masterKeys, lists, guard, store, watch.registry, log)
	if err != nil {
		return nil, err
	}
	engaged, err := newEngage(c, shown, masterKeys, lists, guard, store, hooks, log)
	if err != nil {
		return nil, err
	}
	if err := watch.commands(engaged.limits); err != nil {
		return nil, err
	}
	metrics.WatchPostgres(watch.registry, "requests", store.PoolStat)
	metrics.WatchPostgres(watch.registry, "searches", store.SearchPoolStat)
	if engaged.limits.AreShared() {
		metrics.WatchRedis(watch.registry, engaged.limits.PoolStats)
	}
	queuemetrics.WatchQueue(watch.registry, store, log)
	needed := partsOfAPI(store, source, engaged.limits)
	table := modules(parts{
		baseURL:    c.BaseURL,
		gate:       guard,
		store:      store,
		cursors:    lists,
		programmes: cursors,
		engage:     engaged,
	})
	all := []routes{assistants.Routes(), wellknown.Routes(c.BaseURL, shown.Name())}
	all = append(all, apidoc.New(c.BaseURL, shown).Routes(), me.Routes(guard, store))
	all = append(all, events.Routes(guard, store, lists), hooks.endpoint.Routes())
	all = append(all, healthRoutes(ready(guard, log, needed)))
	for _, m := range table {
		all = append(all, m.routes...)
	}
	router := newRouter(guard, all, deprecation.All())
	return &App{
		Handler: watch.traces.Server(
			web.Observe(
				web.RecordAddress(withSecurityHeaders(web.Compress(router)), proxies),
				log,
				lastResort(guard),
				watch.requests()...),
			proxies,
		),
		modules: table,
		router:  router,
		server: web.Server{
			Address: c.Listen,
			Notice:  c.Notice,
			Ready:   firstCheck(needed),
		},
		master:   secretfile.NewKeys("ALMONER_KEYS", c.files.keys, c.Keys, masterKeys, log),
		log:      log,
		store:    store,
		usage:    usage,
		keys:     source,
		importer: importer,
		eraser:   worker.NewEraser(store, log),
		probes: workerProbes{
			c.WorkerListen,
			withSecurityHeaders(probes(ready(guard, log, partsOfWorker(store)))),
		},
		engage:    engaged,
		webhooks:  hooks,
		retention: store.Retention(c.RetentionSettings.periods()),
		deleted:   metrics.CountDeleted(watch.registry),
		profiles:  c.Profiles,
		processes: c.Worker,
		metrics:   c.Metrics,
		registry:  watch.registry,
		traces:    watch.traces,
	}, nil
}

// newAssistants builds the MCP endpoint. Its gate makes the same checks as the API's, with the same stores.
func newAssistants(
	c Config, shown brand.Brand, atGate gate.Deps, store *postgres.Store, cursors *programme.Cursors,
) (*mcp.Endpoint, error) {
	origins, err := mcp.ParseOrigins(c.MCPOrigins + "," + c.AppURL)
	if err != nil {
		return nil, err
	}
	atGate.Resource = gate.MCP
	return mcp.New(mcp.Deps{
		Brand:   shown.Name(),
		Gate:    gate.New(atGate),
		Store:   store,
		Cursors: cursors,
		Origins: origins,
	}), nil
}

// Run serves until ctx ends, then completes the requests and the import in progress. It calls ready with the listen
// address.
func (a *App) Run(ctx context.Context, ready func(net.Addr)) error {
	endMetrics, err := metrics.Serve(a.metrics, a.registry, a.log)
	if err != nil {
		return err
	}
	defer endMetrics()
	profile.OnSignal(ctx, a.profiles, "resourceapi", a.log)
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	group.Go(func() { a.keys.Run(background) })
	group.Go(func() { a.master.Run(background) })
	group.Go(func() { a.importer.Run(background) })
	group.Go(func() { a.webhooks.publishKey(background) })
	group.Go(func() { a.retention.Run(background, a.deleted, a.log) })
	if a.processes {
		group.Go(func() { a.engage.worker.Run(background) })
		group.Go(func() { a.eraser.Run(background) })
	}
	err = web.Serve(ctx, a.server, a.Handler, a.log, ready)
	stop()
	group.Wait()
	return err
}

// Work processes submissions and sends webhooks until ctx ends. It serves only the probes, and only if a listen address
// for them is set. It calls ready with that address.
func (a *App) Work(ctx context.Context, ready func(net.Addr)) error {
	endMetrics, err := metrics.Serve(a.metrics, a.registry, a.log)
	if err != nil {
		return err
	}
	defer endMetrics()
	working, stop := context.WithCancel(ctx)
	defer stop()
	var group sync.WaitGroup
	group.Go(func() { a.master.Run(working) })
	group.Go(func() { a.engage.worker.Run(working) })
	group.Go(func() { a.eraser.Run(working) })
	if a.probes.listen == "" {
		group.Wait()
		return nil
	}
	err = web.Serve(ctx, web.Server{Address: a.probes.listen}, a.probes.handler, a.log, ready)
	stop()
	group.Wait()
	return err
}

// Close releases what New opened. Run must have returned.
func (a *App) Close() {
	a.usage.Close()
	_ = a.engage.limits.Close() // no request depends on it
	a.store.Close()
	a.traces.Stop()
}
