// Package app composes resourceapi from its parts.
//
// Only this package imports all of them. New builds the service; Run serves until its context ends.
package app

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"github.com/almonerhq/almoner/shared/config/envconf"
	"github.com/almonerhq/almoner/shared/config/secretfile"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/contract/usage"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/database/pg"
	"github.com/almonerhq/almoner/shared/database/retention"
	"github.com/almonerhq/almoner/shared/net/publicnet"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/page/brand"
	"github.com/almonerhq/almoner/shared/rest"
	"github.com/almonerhq/almoner/shared/server"

	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/apidoc"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/mcp"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
	"github.com/almonerhq/almoner/resourceapi/internal/store/redis"
	"github.com/almonerhq/almoner/resourceapi/internal/worker"
)

// An App is the service, ready to run.
type App struct {
	// Handler serves every request.
	Handler http.Handler

	parts
	modules         []module
	router          *mux.Router
	serving         server.Process
	servingWorks    []func(context.Context)
	processing      server.Process // of submissions and webhooks, without the API
	processingWorks []func(context.Context)
}

// parts are the parts from which modules and endpoints are built.
type parts struct {
	config     Config
	brand      brand.Brand
	keys       seal.Keys
	programmes *rest.Cursors // of the list of programmes
	lists      *rest.Cursors // of all others
	proxies    web.Proxies
	watch      server.Instruments
	store      *postgres.Store
	tokens     *gate.Keys
	lastUse    *standing.LastUseRecorder
	usage      *usage.Counter
	gate       *gate.Gate
	limits     *redis.Limits
	log        *slog.Logger
}

func newParts(ctx context.Context, c Config, log *slog.Logger) (p parts, err error) {
	p.config, p.log = c, log
	if p.keys, err = seal.ParseKeys(c.Keys); err != nil {
		return p, fmt.Errorf("ALMONER_KEYS: %w", err)
	}
	if p.programmes, err = rest.NewCursors(p.keys, programme.CursorPurpose); err != nil {
		return p, err
	}
	if p.lists, err = rest.NewCursors(p.keys, gate.CursorPurpose); err != nil {
		return p, err
	}
	if p.proxies, err = web.ParseProxies(c.Proxies); err != nil {
		return p, err
	}
	if p.brand, err = c.Options.Read(); err != nil {
		return p, err
	}
	if p.watch, err = server.NewInstruments(ctx, "resourceapi", c.TraceSettings, log); err != nil {
		return p, err
	}
	url := secretfile.Postgres("ALMONER_DATABASE_URL", c.reading.File("ALMONER_DATABASE_URL"), c.DatabaseURL, log)
	limits := postgres.Limits{Connections: c.Connections, Wait: c.StoreWait, Search: c.searchTime}
	if p.store, err = postgres.Open(ctx, url, limits, p.watch.Statements()...); err != nil {
		return p, err
	}
	p.lastUse = p.store.LastUseRecorder(log)
	if p.usage, err = p.store.UsageCounter(log); err != nil {
		return p, err
	}
	p.tokens = gate.NewKeys(c.JWKSURL, c.BaseURL, log, time.Now)
	p.gate = gate.New(gate.Deps{
		Resource:  gate.API,
		BaseURL:   c.BaseURL,
		Keys:      p.tokens,
		Standings: p.store,
		RecordUse: p.lastUse.Record,
		Log:       log,
		Bounds:    gate.NewBounds(p.store.SearchesPerWorkspace()),
	})
	redisURL := secretfile.Redis("ALMONER_REDIS_URL", c.reading.File("ALMONER_REDIS_URL"), c.RedisURL, log)
	p.limits, err = redis.Connect(redisURL, c.StoreWait, log, time.Now)
	return p, err
}

// New builds the service. It opens no connection, so it works while Postgres and the authorization server are down.
// The caller must close the App.
func New(ctx context.Context, c Config, log *slog.Logger) (*App, error) {
	p, err := newParts(ctx, c, log)
	if err != nil {
		return nil, err
	}
	assistants, err := newAssistants(p)
	if err != nil {
		return nil, err
	}
	hooks, err := newWebhooks(p)
	if err != nil {
		return nil, err
	}
	engage, process, err := newEngage(p, hooks)
	if err != nil {
		return nil, err
	}
	if err := p.watchStores(); err != nil {
		return nil, err
	}
	needed := partsOfAPI(p.store, p.tokens, p.limits)
	a := &App{parts: p, modules: modules(p, engage)}
	nothing := apidoc.ForBrowsers(c.AppURL, p.brand,
		refuse(p.gate, apierr.New(apierr.NotFound, "This path does not exist.")))
	all := []routes{
		assistants.Routes(),
		gate.MetadataRoutes(c.BaseURL, p.brand.Name()),
		apidoc.Routes(c.BaseURL, p.brand, nothing),
		p.gate.Me(),
		p.gate.MyUsage(p.store, p.lists),
		hooks.endpoint.Routes(),
		{"/healthz": {"GET": server.Alive()}, "/readyz": {"GET": ready(p.gate, log, needed)}},
	}
	for _, m := range a.modules {
		all = append(all, m.routes...)
	}
	a.router = newRouter(p.gate, all, nothing, rest.Deprecated())
	panicked := refuse(p.gate, apierr.Of(nil))
	a.Handler = p.watch.Observe(withSecurityHeaders(web.Compress(a.router)), p.proxies, log, panicked, p.usage)
	a.serving = server.Process{
		Server:   web.Server{Address: c.Listen, Notice: c.Notice, Ready: needed.Ready},
		Handler:  a.Handler,
		Metrics:  c.Metrics,
		Registry: p.watch.Registry,
		Log:      log,
	}
	a.processing = a.serving
	a.processing.Server = web.Server{Address: c.WorkerListen}
	a.processing.Handler = withSecurityHeaders(probes(ready(p.gate, log, partsOfWorker(p.store))))
	a.servingWorks, a.processingWorks = works(p, hooks, process)
	return a, nil
}

// works returns what the processes do in the background: those that serve, and those that only process submissions and
// webhooks.
func works(p parts, hooks webhookParts, process func(context.Context)) (serving, processing []func(context.Context)) {
	c, log := p.config, p.log
	followKeys := secretfile.Keys("ALMONER_KEYS", c.reading.File("ALMONER_KEYS"), c.Keys, p.keys, log)
	expired := p.store.Retention(retention.Days(c.ImportsDays), retention.Days(c.SupportersDays))
	deleted := server.CountDeleted(p.watch.Registry)
	erase := worker.Poll("erasures", worker.ErasuresEvery, p.store.ProcessErasure, log)
	processing = []func(context.Context){process, erase}
	serving = []func(context.Context){
		p.tokens.Run,
		followKeys,
		worker.Poll("imports", worker.ImportsEvery, p.store.ProcessImport, log),
		hooks.publishKey,
		func(ctx context.Context) { expired.Run(ctx, deleted, log) },
	}
	if c.Worker {
		serving = append(serving, processing...)
	}
	return serving, append(processing, followKeys)
}

// watchStores measures the stores and the queue in Postgres.
func (p parts) watchStores() error {
	server.WatchPostgres(p.watch.Registry, "requests", p.store.PoolStat)
	server.WatchPostgres(p.watch.Registry, "searches", p.store.SearchPoolStat)
	watchSubmissions(p.watch.Registry, p.store, p.log)
	if p.limits.Client == nil {
		return nil
	}
	server.WatchRedis(p.watch.Registry, p.limits.Client)
	return p.watch.Commands(p.limits.Client)
}

// newAssistants builds the MCP endpoint. Its gate makes the same checks as the API's, with the same stores.
func newAssistants(p parts) (*mcp.Endpoint, error) {
	origins, err := mcp.ParseOrigins(p.config.MCPOrigins + "," + p.config.AppURL)
	if err != nil {
		return nil, err
	}
	atGate := p.gate.Deps
	atGate.Resource = gate.MCP
	return mcp.New(mcp.Deps{
		Brand:   p.brand.Name(),
		Gate:    gate.New(atGate),
		Store:   p.store,
		Cursors: p.programmes,
		Origins: origins,
		Count:   countTools(p.watch.Registry),
	}), nil
}

// Run serves until ctx ends, then completes the requests and the import in progress. It calls ready with the listen
// address.
func (a *App) Run(ctx context.Context, ready func(net.Addr)) error {
	server.ProfileOnSignal(ctx, a.config.Profiles, "resourceapi", a.serving.Log)
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
	a.lastUse.Close()
	_ = a.limits.Close() // no request depends on it
	a.store.Close()
	a.watch.Stop()
}

// newRouter returns the router of all routes. Unknown paths, which nothing answers, and wrong methods are refused
// before the credential is checked (contract, section 6).
func newRouter(guard *gate.Gate, all []routes, nothing http.Handler, deprecated rest.Deprecations) *mux.Router {
	router := rest.NewRouter(deprecated)
	router.NotFoundHandler = nothing
	wrongMethod := refuse(guard, apierr.New(apierr.MethodNotAllowed,
		"This path does not support this method. The Allow header lists the supported methods."))
	for _, some := range all {
		for _, path := range slices.SortedFunc(maps.Keys(some), fixedFirst) {
			router.Handle(path, web.Methods(some[path], wrongMethod))
		}
	}
	return router
}

// fixedFirst orders a path before those that have more {names}, since the router takes the first that matches.
func fixedFirst(a, b string) int {
	return cmp.Or(strings.Count(a, "{")-strings.Count(b, "{"), strings.Compare(a, b))
}

// probes returns the handler of a worker.
func probes(ready http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", server.Alive())
	mux.Handle("GET /readyz", ready)
	return mux
}

func refuse(guard *gate.Gate, err error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { guard.Refuse(w, r, err) })
}

// withSecurityHeaders sets the headers of every response: no content sniffing and no caching.
func withSecurityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// partsOfAPI returns the dependencies of the API. Redis is reported but not required: without it each process limits
// by itself. The keys of access tokens are required until they were read once. Later the cached ones are used
// (gate.Keys), but a new process that cannot reach the authorization server must not replace one that could. The
// authorization server in turn waits only for its stores.
func partsOfAPI(store *postgres.Store, keys *gate.Keys, limits *redis.Limits) server.Parts {
	parts := append(partsOfWorker(store), server.Part{Name: "keys", Check: keys.Ready, Required: true})
	if limits.Client != nil {
		ping := func(ctx context.Context) error { return limits.Client.Ping(ctx).Err() }
		parts = append(parts, server.Part{Name: "redis", Check: ping})
	}
	return parts
}

// partsOfWorker returns the dependencies of processing submissions.
func partsOfWorker(store *postgres.Store) server.Parts {
	return server.Parts{{Name: "postgres", Check: store.Ready, Required: true}}
}

// ready reports whether requests can be served.
func ready(guard *gate.Gate, log *slog.Logger, parts server.Parts) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if web.Leaving(r.Context()) {
			guard.Refuse(w, r, apierr.New(apierr.Unavailable, "This process is shutting down."))
			return
		}
		var refusal error
		states := parts.States(r.Context(), func(part server.Part, err error) bool {
			if part.Required {
				refusal = err
				return false
			}
			log.WarnContext(r.Context(), "dependency unavailable", "part", part.Name, "cause", err)
			return true
		})
		if refusal != nil {
			guard.Refuse(w, r, refusal)
			return
		}
		web.JSON(w, http.StatusOK, states)
	})
}

// Config is the settings of `resourceapi serve`.
type Config struct {
	Listen       string            `env:"ALMONER_LISTEN" envDefault:"127.0.0.1:8082" doc:"Address and port to listen on."`
	BaseURL      string            `env:"ALMONER_BASE_URL,required,notEmpty" doc:"Public URL of the API, which is also the OAuth issuer, without a trailing slash."`
	DatabaseURL  credential.Secret `env:"ALMONER_DATABASE_URL,required,notEmpty" doc:"PostgreSQL URL of a role that is a member of almoner_resourceapi."`
	Connections  int32             `env:"ALMONER_DATABASE_CONNECTIONS" envDefault:"16" doc:"Maximum number of PostgreSQL connections, 2 to 500. A quarter of them is for searches, and one for /readyz. With 2 or 3, these are two additional connections."`
	Keys         credential.Secret `env:"ALMONER_KEYS,required,notEmpty" doc:"Keys of 32 bytes in base64url, newest first, separated by commas. They protect cursors, the tokens of public forms and the secrets of webhooks."`
	RedisURL     credential.Secret `env:"ALMONER_REDIS_URL" doc:"URL of Redis, for limits that all processes share. Name several nodes of a Redis Cluster, like redis://:password@host:6379?addr=second:6379&addr=third:6379, or several Sentinels, like redis://:sentinelpassword@host:26379/0?master_name=almoner&password=password&addr=second:26379&addr=third:26379. rediss:// uses TLS. Without it, each process counts separately."`
	Proxies      string            `env:"ALMONER_TRUSTED_PROXIES" doc:"Address ranges of trusted proxies, separated by commas. X-Forwarded-For is read only from them."`
	Notice       time.Duration     `env:"ALMONER_NOTICE" envDefault:"4s" doc:"How long the server keeps serving after SIGTERM, while /readyz returns 503 and each response closes its connection. Must be longer than load balancers need to notice and longer than they keep an idle connection. Maximum: 10s."`
	StoreWait    time.Duration     `env:"ALMONER_STORE_WAIT" envDefault:"0s" doc:"How long a request waits for a store that does not respond: up to 20s, for a machine that is often busy. 0: less than 300ms. More than a second also lengthens other waits for PostgreSQL."`
	Worker       bool              `env:"ALMONER_WORKER" envDefault:"true" doc:"Whether serve also processes submissions and sends webhooks. If false, run resourceapi worker."`
	WorkerListen string            `env:"ALMONER_WORKER_LISTEN" doc:"Address and port where resourceapi worker serves /healthz and /readyz. Empty: it serves neither."`
	AppURL       string            `env:"ALMONER_APP_URL" doc:"Public URL of sign-in and settings, without a trailing slash. The pages for browsers at ALMONER_BASE_URL link it, and pages of this origin may call the MCP endpoint."`
	MCPOrigins   string            `env:"ALMONER_MCP_ORIGINS" envDefault:"https://claude.ai,https://claude.com,https://chatgpt.com,https://vscode.dev,loopback" doc:"Origins whose pages may call the MCP endpoint, in addition to ALMONER_APP_URL, separated by commas; loopback means this machine, at any port."`
	Metrics      string            `env:"ALMONER_METRICS_LISTEN" doc:"Address and port for Prometheus metrics, at /metrics. Use another port than ALMONER_LISTEN, and close it to the public. Empty: no metrics."`
	Profiles     string            `env:"ALMONER_PROFILES" doc:"Directory for profiles. On SIGUSR1 the process writes a memory profile and a CPU profile of the next 10 seconds there. Empty: no profiles."`
	JWKSURL      string            `env:"ALMONER_JWKS_URL" doc:"URL of authserver's public keys. Default: ALMONER_BASE_URL/v1/account/oauth/jwks."`
	WebhookCA    string            `env:"ALMONER_WEBHOOK_CA" doc:"For development only: certificates in PEM to trust in addition to the system's when delivering webhooks, which may then go to this machine. Refused unless ALMONER_BASE_URL is an address of this machine."`
	RetentionSettings
	brand.Options
	server.TraceSettings

	reading    envconf.Reading
	searchTime time.Duration // limit of a search; 0 means the contract's
}

// LoadConfig reads the settings (package envconf). Its error lists every mistake and quotes no value.
func LoadConfig(environ []string) (c Config, reading envconf.Reading, err error) {
	reading, err = envconf.Load(&c, environ)
	c.reading = reading
	return c, reading, err
}

// Complete derives unset settings from others. It is called by envconf.
func (c *Config) Complete() {
	if c.JWKSURL == "" {
		c.JWKSURL = c.BaseURL + "/v1/account/oauth/jwks"
	}
}

// maxNotice and the 20 seconds in which requests in flight finish must fit into the grace period of the process
// manager.
const maxNotice = 10 * time.Second

// Check reports mistakes that parsing does not find. It is called by envconf.
func (c *Config) Check() []error {
	const origin = " must be http:// or https:// and a host, without a path or a trailing slash"
	var m envconf.Checks
	m.Require(mcp.IsOrigin(c.BaseURL), "ALMONER_BASE_URL"+origin)
	m.Require(c.Notice >= 0 && c.Notice <= maxNotice, "ALMONER_NOTICE must be between 0 and 10s")
	m.Require(c.AppURL == "" || mcp.IsOrigin(c.AppURL), "ALMONER_APP_URL"+origin)
	_, err := mcp.ParseOrigins(c.MCPOrigins)
	m.Require(err == nil, "ALMONER_MCP_ORIGINS must be origins like https://app.example.org, or the word loopback, "+
		"separated by commas")
	m.Require(c.JWKSURL == "" || isHTTP(c.JWKSURL), "ALMONER_JWKS_URL must be an http:// or https:// URL")
	m.Require(c.Connections >= 2 && c.Connections <= 500, "ALMONER_DATABASE_CONNECTIONS must be between 2 and 500")
	m.Valid("ALMONER_STORE_WAIT", pg.CheckWait(c.StoreWait))
	m.Valid("ALMONER_METRICS_LISTEN", server.CheckMetricsAddress(c.Metrics, c.Listen, c.WorkerListen))
	_, err = web.ParseProxies(c.Proxies)
	m.Require(err == nil, "ALMONER_TRUSTED_PROXIES must be addresses or ranges like 10.0.0.0/8, separated by commas")
	m.Require(postgres.CheckURL(c.DatabaseURL.Reveal()) == nil,
		"ALMONER_DATABASE_URL must look like postgres://user:password@host:5432/almoner")
	_, err = redis.Connect(credential.Fixed(c.RedisURL), 0, slog.New(slog.DiscardHandler), time.Now)
	m.Valid("ALMONER_REDIS_URL:", err)
	_, err = seal.ParseKeys(c.Keys)
	m.Valid("ALMONER_KEYS:", err)
	m = append(m, c.checkWebhooks()...)
	m = append(m, c.RetentionSettings.Check()...)
	m = append(m, c.Options.Check()...)
	return append(m, c.TraceSettings.Check()...)
}

// checkWebhooks reports mistakes in the settings of webhooks.
func (c *Config) checkWebhooks() []error {
	var m envconf.Checks
	_, err := publicnet.TrustedPool(c.WebhookCA)
	m.Valid("ALMONER_WEBHOOK_CA", err)
	// With this setting, users can enter URLs of the local machine. A server that other machines can reach must not
	// call them.
	m.Require(c.WebhookCA == "" || publicnet.OnThisMachine(c.BaseURL),
		"ALMONER_WEBHOOK_CA is for development: ALMONER_BASE_URL must be an address of this machine")
	return m
}

func isHTTP(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil
}

// RetentionSettings say how many days records are kept after they have ended. The retentionMonths of a form determine
// how long its submissions are kept.
type RetentionSettings struct {
	ImportsDays    int `env:"ALMONER_RETENTION_IMPORTS_DAYS" envDefault:"90" doc:"Days that finished imports are kept, with their errors; 0 keeps them for ever."`
	SupportersDays int `env:"ALMONER_RETENTION_SUPPORTERS_DAYS" envDefault:"30" doc:"Days that supporters are kept after their last submission was deleted; 0 keeps them for ever."`
}

// Check reports the settings that are out of range. envconf calls it.
func (r RetentionSettings) Check() []error {
	var m envconf.Checks
	for name, days := range map[string]int{
		postgres.ImportsSetting:    r.ImportsDays,
		postgres.SupportersSetting: r.SupportersDays,
	} {
		m.Require(days >= 0 && days <= retention.MaxDays,
			fmt.Sprintf("%s must be between 0 and %d", name, retention.MaxDays))
	}
	return m
}
