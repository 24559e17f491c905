// Package app builds authserver from its parts: configuration, wiring, routes and health. It is the only package that
// imports every other.
package app

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/authserver/internal/oauth/clientmetadata"
	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/database/retention"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/server"
)

// An App is authserver, wired and ready to serve.
type App struct {
	Parts
	Handler http.Handler // serves every route

	config  Config
	process server.Process
	works   []func(context.Context)
	watch   server.Instruments
	endUses func()
}

// New wires the parts. It does not wait for a store: one that is down at the start gives a 503, not a crash.
func New(ctx context.Context, c Config, log *slog.Logger, replaced ...Option) (*App, error) {
	k, err := newCore(ctx, c, optionsOf(replaced), log)
	if err != nil {
		return nil, err
	}
	mailWorks, err := newMail(c, k.store, k.keys, k.watch.Registry, k.now, log)
	if err != nil {
		return nil, err
	}
	people := membersOf(k.store, k.grants, c)
	b, err := k.browser(people)
	if err != nil {
		return nil, err
	}
	uses, endUses := k.usageRecorder(k.store, log)
	h, err := k.handlers(b, people, uses)
	if err != nil {
		return nil, err
	}
	parts := partsOf(k.store, k.probe, k.ring)
	h.ready = ready(log, parts)
	handler := k.watch.Observe(h.router(), k.proxies, log, lastResort())
	expired := k.store.Retention(c.RetentionSettings.periods())
	return &App{
		Parts:   k.parts(b, expired),
		Handler: handler,
		config:  c,
		process: server.Process{
			Server:   web.Server{Address: c.Listen, Notice: c.Notice, Ready: parts.Ready},
			Handler:  handler,
			Metrics:  c.MetricsListen,
			Registry: k.watch.Registry,
			Log:      log,
		},
		works:   append(mailWorks, k.works(expired)...),
		watch:   k.watch,
		endUses: endUses,
	}, nil
}

// Close stops background work and closes the connections to the stores.
func (a *App) Close() {
	a.endUses()
	a.Store.Close()
	_ = a.Redis.Close() // no commands are pending
	a.watch.Stop()
}

// Serve serves until ctx ends, and then lets the requests in flight finish.
func (a *App) Serve(ctx context.Context) error {
	defer a.Close()
	log := a.process.Log
	server.ProfileOnSignal(ctx, a.config.Profiles, "authserver", log)
	return a.process.Run(ctx, func(address net.Addr) {
		log.Info("listening", "address", address.String(), "issuer", a.config.BaseURL)
	}, false, a.works...)
}

// An Option replaces a part that New would create. Only tests use options: they build the same service with other
// clocks, another recorder, and cheap password hashes.
type Option func(*options)

type options struct {
	now      func() time.Time
	failures func() time.Time
	uses     UsageRecorder
	cost     session.Cost
}

func optionsOf(replaced []Option) options {
	o := options{now: time.Now, failures: time.Now, cost: session.StandardCost()}
	for _, option := range replaced {
		option(&o)
	}
	return o
}

// A UsageRecorder records that a credential was used.
type UsageRecorder interface {
	Record(s standing.Standing)
}

// WithClock sets the clock of the service. The stores keep their own clocks.
func WithClock(now func() time.Time) Option { return func(o *options) { o.now = now } }

// WithFailuresClock sets the clock of the limit of failed requests.
func WithFailuresClock(now func() time.Time) Option { return func(o *options) { o.failures = now } }

// WithPasswordCost sets the cost of the dummy password hash.
func WithPasswordCost(cost session.Cost) Option { return func(o *options) { o.cost = cost } }

// WithUsageRecorder replaces the recorder that writes to Postgres.
func WithUsageRecorder(r UsageRecorder) Option { return func(o *options) { o.uses = r } }

// Parts are the parts of the service that tests use directly.
type Parts struct {
	Store     *postgres.Store
	Redis     goredis.UniversalClient
	Grants    *grant.Service
	Engine    *engine.Engine
	Keyring   *keyring.Keyring
	Documents *clientmetadata.Resolver
	Sessions  *session.Sessions
	Passwords *session.Passwords
	Failures  *ratelimit.Limiter // its Share runs only in Serve
	Retention *retention.Store   // Serve calls its Run
}
