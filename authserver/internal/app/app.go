// Package app builds authserver from its parts: configuration, wiring, routes and health. It is the only package that
// imports every other.
package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/gorilla/mux"
	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/api"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/protocol/introspect"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/protocol/revoke"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/protocol/token"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/protocol/wellknown"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	oauthmetrics "github.com/almonerhq/almoner/authserver/internal/metrics"
	"github.com/almonerhq/almoner/authserver/internal/oauth/clientmetadata"
	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/shared/config/secretfile"
	"github.com/almonerhq/almoner/shared/contract/deprecation"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/database/retention"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
	"github.com/almonerhq/almoner/shared/server"
	"github.com/almonerhq/almoner/shared/server/inflight"
	"github.com/almonerhq/almoner/shared/server/metrics"
	"github.com/almonerhq/almoner/shared/server/profile"
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
	o := options{now: time.Now, failures: time.Now, cost: session.StandardCost()}
	for _, option := range replaced {
		option(&o)
	}
	keys, err := seal.ParseKeys(c.Keys)
	if err != nil {
		return nil, err
	}
	proxies, err := web.ParseProxies(c.TrustedProxies)
	if err != nil {
		return nil, err
	}
	watch, err := server.NewInstruments(ctx, "authserver", c.Settings, log)
	if err != nil {
		return nil, err
	}
	oauthMetrics := oauthmetrics.New(watch.Registry)
	store, rdb, probe, err := openStores(ctx, c, keys, watch, log)
	if err != nil {
		return nil, err
	}
	ring, err := keyring.New(store, keys)
	if err != nil {
		return nil, err
	}
	ring.RotateAfter(c.KeyMaxAge)
	codec, err := grant.NewTokenCodec(keys)
	if err != nil {
		return nil, err
	}
	metadata, err := wellknown.Metadata(c.BaseURL, c.AppURL, c.servesDocuments())
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	grants := grant.NewService(store, redis.NewGrants(rdb), codec, log)
	grants.ObserveRevocations(oauthMetrics.CountRevocation)
	grants.WaitForStores(c.StoreWait)
	resources := perm.Identifiers(c.BaseURL)
	documents, err := newDocuments(c, store, o.now, log)
	if err != nil {
		return nil, err
	}
	oauth := engine.New(engine.Deps{
		Issuer:       c.BaseURL,
		RESTResource: resources[0],
		Resources:    resources,
		Clients:      store,
		Documents:    documents,
		Assertions:   newAssertionVerifier(c, documents, rdb, o.now),
		Grants:       grants,
		Signer:       ring,
	})
	oauth.RecordRefusals(store, o.now, log)
	oauth.Observe(oauthMetrics.CountRequest)
	mailWorks, err := newMail(c, store, keys, watch.Registry, o.now, log)
	if err != nil {
		return nil, err
	}
	uses, endUses := o.usageRecorder(store, log)
	shown, err := c.Options.Read()
	if err != nil {
		return nil, err
	}
	pages, err := ui.New(log)
	if err != nil {
		return nil, err
	}
	pages.SetBrand(shown)
	lists, err := rest.NewCursors(keys, "account cursor")
	if err != nil {
		return nil, err
	}
	people := membersOf(store, grants, c)
	b, err := newBrowser(browserDeps{
		config:    c,
		log:       log,
		store:     store,
		counters:  redis.NewLoginCounters(rdb),
		keys:      keys,
		pages:     pages,
		engine:    oauth,
		grants:    grants,
		members:   people,
		accounts:  accountsOf(store, grants),
		resources: resources,
		now:       o.now,
		cost:      o.cost,
	})
	if err != nil {
		return nil, err
	}
	failed := ratelimit.NewLimiter(redis.NewRateLimits(rdb), log, o.failures)
	failed.ObserveThrottled(oauthMetrics.CountThrottled)
	parts := partsOf(store, probe, ring)
	account := &api.Deps{
		Issuer:    c.BaseURL,
		Resource:  resources[0],
		Resources: resources,
		Keys:      ring.Public,
		Uses:      uses,
		Bounds:    inflight.NewCredentials(0),
		Members:   people,
		Store:     store,
		PropagateRevocation: func(ctx context.Context, id uuid.UUID, ends time.Time, reason grant.Reason) {
			postgres.AfterCommit(ctx, func() { grants.PropagateRevocation(ctx, id, ends, reason) })
		},
		Variables: mux.Vars,
		Cursors:   lists,
		Now:       o.now,
		Log:       log,
	}
	h := handlers{
		token: token.New(token.Deps{
			Engine:   oauth,
			Tokens:   grants,
			Failures: failed,
			Proxies:  proxies,
			Log:      log,
		}),
		revoke: revoke.New(revoke.Deps{
			Issuer:   c.BaseURL,
			Engine:   oauth,
			Grants:   grants,
			Tokens:   store,
			Failures: failed,
			Keys:     ring.Public,
			Now:      o.now,
			Log:      log,
		}),
		introspect: introspect.New(introspect.Deps{
			Issuer:   c.BaseURL,
			Resource: resources[0],
			Store:    store,
			Keys:     ring.Public,
			Uses:     uses,
			Failures: failed,
			Now:      o.now,
			Log:      log,
		}),
		authorizeAlias: redirectTo(c.AppURL + "/oauth/authorize"),
		jwks:           wellknown.Document(ring.JWKS),
		metadata:       wellknown.Document(func() ([]byte, error) { return metadata, nil }),
		account:        account.Routes(),
		browser:        b,
		deprecated:     deprecation.All(),
		alive:          server.Alive(),
		ready:          ready(log, parts),
		withKeys:       func(next http.Handler) http.Handler { return withKeys(ring, log, next) },
	}
	handler := watch.Observe(h.router(), proxies, log, lastResort())
	expired := store.Retention(c.RetentionSettings.periods())
	deleted := metrics.CountDeleted(watch.Registry)
	works := append(mailWorks,
		secretfile.NewKeys("ALMONER_KEYS", c.reading.File("ALMONER_KEYS"), c.Keys, keys, log).Run,
		func(ctx context.Context) { ring.Run(ctx, log) },
		func(ctx context.Context) { expired.Run(ctx, deleted, log) },
		func(ctx context.Context) { endGrants(ctx, store, grants, log) },
		failed.Share)
	return &App{
		Parts: Parts{
			Store:     store,
			Redis:     rdb,
			Grants:    grants,
			Engine:    oauth,
			Keyring:   ring,
			Documents: documents,
			Sessions:  b.sessions,
			Passwords: b.passwords,
			Failures:  failed,
			Retention: expired,
		},
		Handler: handler,
		config:  c,
		process: server.Process{
			Server:   web.Server{Address: c.Listen, Notice: c.Notice, Ready: parts.Ready},
			Handler:  handler,
			Metrics:  c.MetricsListen,
			Registry: watch.Registry,
			Log:      log,
		},
		works:   works,
		watch:   watch,
		endUses: endUses,
	}, nil
}

// membersOf returns the service of members and invitations.
func membersOf(store *postgres.Store, grants *grant.Service, c Config) *membership.Service {
	return membership.New(membership.Deps{
		Store: store,
		PropagateRevocation: func(ctx context.Context, id uuid.UUID, ends time.Time) {
			postgres.AfterCommit(ctx, func() { grants.PropagateRevocation(ctx, id, ends, grant.MembershipOver) })
		},
		AppURL: c.AppURL,
		Mails:  c.sendsMail(),
		Random: rand.Reader,
	})
}

// accountsOf returns the service that changes and deletes accounts.
func accountsOf(store *postgres.Store, grants *grant.Service) *useraccount.Service {
	return useraccount.New(useraccount.Deps{
		Store: store,
		PropagateRevocation: func(ctx context.Context, id uuid.UUID, ends time.Time) {
			grants.PropagateRevocation(ctx, id, ends, grant.MembershipOver)
		},
		Random: rand.Reader,
	})
}

// openStores opens the stores. probe is a connection to Redis for probes alone.
func openStores(ctx context.Context, c Config, keys seal.Keys, watch server.Instruments, log *slog.Logger) (
	store *postgres.Store, rdb, probe goredis.UniversalClient, err error,
) {
	if store, err = postgres.OpenFromSources(ctx, c.databases(log), c.StoreWait, watch.Statements()...); err != nil {
		return nil, nil, nil, err
	}
	if err = sealSecrets(store, keys); err != nil {
		return nil, nil, nil, err
	}
	url := secretfile.Redis("ALMONER_REDIS_URL", c.reading.File("ALMONER_REDIS_URL"), c.RedisURL, log)
	if rdb, err = redis.ConnectFromSource(url, c.StoreWait); err != nil {
		return nil, nil, nil, err
	}
	if probe, err = redis.ConnectProbe(url); err != nil {
		return nil, nil, nil, err
	}
	metrics.WatchPostgres(watch.Registry, "requests", store.PoolStat)
	if store.HasRefreshPool() {
		metrics.WatchPostgres(watch.Registry, "refreshes", store.RefreshPoolStat)
	}
	metrics.WatchRedis(watch.Registry, rdb.PoolStats)
	return store, rdb, probe, watch.Commands(rdb)
}

// sealSecrets makes the store seal the secrets of authenticator apps and the answers by Idempotency-Key.
func sealSecrets(store *postgres.Store, keys seal.Keys) error {
	box, err := authenticator.NewBox(keys)
	if err != nil {
		return err
	}
	store.UseAuthenticators(box)
	answers, err := seal.NewBox(keys, "account answer")
	if err != nil {
		return err
	}
	store.UseAnswers(answers)
	return nil
}

// usageRecorder returns the recorder, and a function that stops it.
func (o options) usageRecorder(store *postgres.Store, log *slog.Logger) (uses UsageRecorder, end func()) {
	if o.uses != nil {
		return o.uses, func() {}
	}
	recorder := store.NewUsageRecorder(log)
	return recorder, recorder.Close
}

// Close stops background work and closes the connections to the stores.
func (a *App) Close() {
	a.endUses()
	a.Store.Close()
	_ = a.Redis.Close() // no commands are pending
	a.watch.Stop()
}

// endGrantsInterval is how often the database is queried for grants and tokens that a request left to the
// background.
const endGrantsInterval = time.Second

// endGrants ends the grants and tokens that a request left to the background (postgres.Store.EndNext) until ctx ends.
// After each part it waits as long as the part took, so that each process does this for at most half of the time.
func endGrants(ctx context.Context, store *postgres.Store, grants *grant.Service, log *slog.Logger) {
	failing := func(err error) {
		log.WarnContext(ctx, "cannot revoke grants in the background yet; they are already refused; retrying",
			"error", err)
	}
	server.Repeat(ctx, failing, func(ctx context.Context) (rest time.Duration, err error) {
		began := time.Now()
		ended, found, err := store.EndNext(ctx)
		for _, g := range ended {
			grants.PropagateRevocation(ctx, g.ID, g.Ends, g.Reason)
		}
		if found {
			return time.Since(began), err
		}
		return endGrantsInterval, err
	})
}

// Serve serves until ctx ends, and then lets the requests in flight finish.
func (a *App) Serve(ctx context.Context) error {
	defer a.Close()
	log := a.process.Log
	profile.OnSignal(ctx, a.config.Profiles, "authserver", log)
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
