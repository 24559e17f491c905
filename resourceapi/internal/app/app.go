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
	"time"

	"github.com/gorilla/mux"

	"github.com/almonerhq/almoner/shared/config/secretfile"
	"github.com/almonerhq/almoner/shared/contract/deprecation"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/page/brand"
	"github.com/almonerhq/almoner/shared/rest"
	"github.com/almonerhq/almoner/shared/server"
	"github.com/almonerhq/almoner/shared/server/metrics"
	"github.com/almonerhq/almoner/shared/server/profile"

	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/apidoc"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/events"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/mcp"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/me"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/wellknown"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/keys"
	queuemetrics "github.com/almonerhq/almoner/resourceapi/internal/metrics"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
	"github.com/almonerhq/almoner/resourceapi/internal/store/redis"
	"github.com/almonerhq/almoner/resourceapi/internal/worker"
)

// An App is the service, ready to run.
type App struct {
	// Handler serves every request.
	Handler http.Handler

	modules []module
	router  *mux.Router
	store   *postgres.Store
	usage   *standing.UsageRecorder
	limits  *redis.Limits
	watch   server.Instruments

	profiles        string
	serving         server.Process
	servingWorks    []func(context.Context)
	processing      server.Process // of submissions and webhooks, without the API
	processingWorks []func(context.Context)
}

// parts are the parts from which modules and endpoints are built.
type parts struct {
	config Config
	brand  brand.Brand
	keys   seal.Keys
	lists  *rest.Cursors
	gate   *gate.Gate
	store  *postgres.Store
	log    *slog.Logger
}

// New builds the service. It opens no connection, so it works while Postgres and the authorization server are down.
// The caller must close the App.
func New(ctx context.Context, c Config, log *slog.Logger) (*App, error) {
	masterKeys, err := seal.ParseKeys(c.Keys)
	if err != nil {
		return nil, fmt.Errorf("ALMONER_KEYS: %w", err)
	}
	cursors, err := rest.NewCursors(masterKeys, programme.CursorPurpose)
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
	watch, err := server.NewInstruments(ctx, "resourceapi", c.Settings, log)
	if err != nil {
		return nil, err
	}
	url := secretfile.Postgres("ALMONER_DATABASE_URL", c.reading.File("ALMONER_DATABASE_URL"), c.DatabaseURL, log)
	limits := postgres.Limits{Connections: c.Connections, Wait: c.StoreWait, Search: c.searchTime}
	store, err := postgres.OpenFromSource(ctx, url, limits, watch.Statements()...)
	if err != nil {
		return nil, err
	}
	usage := store.UsageRecorder(log)
	source := keys.NewSource(c.JWKSURL, log, time.Now)
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
	assistants, err := newAssistants(c, shown.Name(), atGate, store, cursors)
	if err != nil {
		return nil, err
	}
	lists, err := rest.NewCursors(masterKeys, gate.CursorPurpose)
	if err != nil {
		return nil, err
	}
	p := parts{config: c, brand: shown, keys: masterKeys, lists: lists, gate: guard, store: store, log: log}
	hooks, err := newWebhooks(p, watch.Registry)
	if err != nil {
		return nil, err
	}
	engaged, err := newEngage(p, proxies, hooks)
	if err != nil {
		return nil, err
	}
	if err := watchStores(watch, store, engaged.limits, log); err != nil {
		return nil, err
	}
	needed := partsOfAPI(store, source, engaged.limits)
	table := modules(p, cursors, engaged)
	all := []routes{assistants.Routes(), wellknown.Routes(c.BaseURL, shown.Name())}
	all = append(all, apidoc.New(c.BaseURL, shown).Routes(), me.Routes(guard, store))
	all = append(all, events.Routes(guard, store, lists), hooks.endpoint.Routes())
	all = append(all, healthRoutes(ready(guard, log, needed)))
	for _, m := range table {
		all = append(all, m.routes...)
	}
	a := &App{
		modules:  table,
		router:   newRouter(guard, all, deprecation.All()),
		store:    store,
		usage:    usage,
		limits:   engaged.limits,
		watch:    watch,
		profiles: c.Profiles,
	}
	a.Handler = watch.Observe(withSecurityHeaders(web.Compress(a.router)), proxies, log, lastResort(guard))
	a.serving = server.Process{
		Server:   web.Server{Address: c.Listen, Notice: c.Notice, Ready: needed.Ready},
		Handler:  a.Handler,
		Metrics:  c.Metrics,
		Registry: watch.Registry,
		Log:      log,
	}
	a.processing = a.serving
	a.processing.Server = web.Server{Address: c.WorkerListen}
	a.processing.Handler = withSecurityHeaders(probes(ready(guard, log, partsOfWorker(store))))
	master := secretfile.NewKeys("ALMONER_KEYS", c.reading.File("ALMONER_KEYS"), c.Keys, masterKeys, log)
	expired, deleted := store.Retention(c.RetentionSettings.periods()), metrics.CountDeleted(watch.Registry)
	processing := []func(context.Context){engaged.worker.Run, worker.NewEraser(store, log).Run}
	a.processingWorks = append(processing, master.Run)
	a.servingWorks = []func(context.Context){
		source.Run,
		master.Run,
		worker.NewImporter(store, log).Run,
		hooks.publishKey,
		func(ctx context.Context) { expired.Run(ctx, deleted, log) },
	}
	if c.Worker {
		a.servingWorks = append(a.servingWorks, processing...)
	}
	return a, nil
}

// watchStores measures the stores and the queue in Postgres.
func watchStores(watch server.Instruments, store *postgres.Store, limits *redis.Limits, log *slog.Logger) error {
	metrics.WatchPostgres(watch.Registry, "requests", store.PoolStat)
	metrics.WatchPostgres(watch.Registry, "searches", store.SearchPoolStat)
	queuemetrics.WatchQueue(watch.Registry, store, log)
	if !limits.AreShared() {
		return nil
	}
	metrics.WatchRedis(watch.Registry, limits.PoolStats)
	return limits.Watch(watch.Commands)
}

// newAssistants builds the MCP endpoint. Its gate makes the same checks as the API's, with the same stores.
func newAssistants(
	c Config, brandName string, atGate gate.Deps, store *postgres.Store, cursors *rest.Cursors,
) (*mcp.Endpoint, error) {
	origins, err := mcp.ParseOrigins(c.MCPOrigins + "," + c.AppURL)
	if err != nil {
		return nil, err
	}
	atGate.Resource = gate.MCP
	return mcp.New(mcp.Deps{
		Brand:   brandName,
		Gate:    gate.New(atGate),
		Store:   store,
		Cursors: cursors,
		Origins: origins,
	}), nil
}

// Run serves until ctx ends, then completes the requests and the import in progress. It calls ready with the listen
// address.
func (a *App) Run(ctx context.Context, ready func(net.Addr)) error {
	profile.OnSignal(ctx, a.profiles, "resourceapi", a.serving.Log)
	return a.serving.Run(ctx, ready, true, a.servingWorks...)
}

// Work processes submissions and sends webhooks until ctx ends. It serves only the probes, and only if a listen address
// for them is set. It calls ready with that address.
func (a *App) Work(ctx context.Context, ready func(net.Addr)) error {
	return a.processing.Run(ctx, ready, false, a.processingWorks...)
}

// Close releases what New opened. Run must have returned.
func (a *App) Close() {
	a.usage.Close()
	_ = a.limits.Close() // no request depends on it
	a.store.Close()
	a.watch.Stop()
}
