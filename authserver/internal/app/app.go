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
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/authorizer"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/introspect"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/listing"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/members"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/oauthclients"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/revoke"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/token"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/wellknown"
	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/shared/deprecation"
	"github.com/almonerhq/almoner/shared/inflight"
	"github.com/almonerhq/almoner/shared/metrics"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/profile"
	"github.com/almonerhq/almoner/shared/retention"
	"github.com/almonerhq/almoner/shared/seal"
	"github.com/almonerhq/almoner/shared/secretfile"
	"github.com/almonerhq/almoner/shared/tracing"
	"github.com/almonerhq/almoner/shared/web"
)

// An App is authserver, wired and ready to serve.
type App struct {
	Parts
	Handler http.Handler // serves every route

	config   Config
	keys     *secretfile.Keys
	server   web.Server
	log      *slog.Logger
	endUses  func()
	mails    mailWorker // nil if the deployment sends no mail
	deleted  retention.Report
	registry *metrics.Registry
	traces   *tracing.Tracing
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
	watch, err := newInstruments(ctx, c.Settings, log)
	if err != nil {
		return nil, err
	}
	store, err := postgres.OpenFromSources(ctx, c.databases(log), c.StoreWait, watch.statements()...)
	if err != nil {
		return nil, err
	}
	if err := sealSecrets(store, keys); err != nil {
		return nil, err
	}
	redisURL := secretfile.Redis("ALMONER_REDIS_URL", c.files.redis, c.RedisURL, log)
	rdb, err := redis.ConnectFromSource(redisURL, c.StoreWait)
	if err != nil {
		return nil, err
	}
	probe, err := redis.ConnectProbe(redisURL)
	if err != nil {
		return nil, err
	}
	if err := watch.commands(rdb); err != nil {
		return nil, err
	}
	metrics.WatchPostgres(watch.registry, "requests", store.PoolStat)
	if store.HasRefreshPool() {
		metrics.WatchPostgres(watch.registry, "refreshes", store.RefreshPoolStat)
	}
	metrics.WatchRedis(watch.registry, rdb.PoolStats)
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
	grants := grant.NewService(store, watch.grants.Rotations(redis.NewGrants(rdb)), codec, log)
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
	mails, err := newMail(c, store, keys, watch, o.now, log)
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
	lists, err := listing.NewCursors(keys)
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
	counted := watch.grants.Failures(failed)
	parts := partsOf(store, probe, ring)
	tenants := authorizer.Deps{
		Issuer:    c.BaseURL,
		Resource:  resources[0],
		Keys:      ring.Public,
		Standings: store,
		Uses:      uses,
		Bounds:    inflight.NewCredentials(0),
		Now:       o.now,
		Log:       log,
	}
	h := handlers{
		token: token.New(token.Deps{
			Engine:   watch.grants.Tokens(engine.NewRefusalRecorder(oauth, store, o.now, log)),
			Tokens:   grants,
			Failures: counted,
			Proxies:  proxies,
			Log:      log,
		}),
		revoke: revoke.New(revoke.Deps{
			Issuer:   c.BaseURL,
			Engine:   oauth,
			Grants:   grants,
			Tokens:   store,
			Failures: counted,
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
			Failures: counted,
			Now:      o.now,
			Log:      log,
		}),
		authorizeAlias: redirectTo(c.AppURL + "/oauth/authorize"),
		jwks:           wellknown.Document(ring.JWKS),
		metadata:       wellknown.Document(func() ([]byte, error) { return metadata, nil }),
		clients: oauthclients.New(oauthclients.Deps{
			Authorizer: tenants,
			Store:      store,
			Resources:  resources,
			PropagateRevocation: func(ctx context.Context, id uuid.UUID, ends time.Time, reason grant.Reason) {
				postgres.AfterCommit(ctx, func() { grants.PropagateRevocation(ctx, id, ends, reason) })
			},
			Variables: variables,
			Cursors:   lists,
			Now:       o.now,
			Log:       log,
		}),
		members: members.New(members.Deps{
			Authorizer: tenants,
			Members:    people,
			Store:      store,
			Variables:  variables,
			Cursors:    lists,
			Log:        log,
		}),
		browser:    b,
		deprecated: deprecation.All(),
		alive:      live(),
		ready:      ready(log, parts),
		withKeys:   func(next http.Handler) http.Handler { return withKeys(ring, log, next) },
	}
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
			Retention: store.Retention(c.RetentionSettings.periods()),
		},
		Handler: watch.traces.Server(
			web.Observe(web.RecordAddress(h.router(), proxies), log, lastResort(), watch.requests()...), proxies),
		config:   c,
		keys:     secretfile.NewKeys("ALMONER_KEYS", c.files.keys, c.Keys, keys, log),
		server:   web.Server{Address: c.Listen, Notice: c.Notice, Ready: firstCheck(parts)},
		log:      log,
		endUses:  endUses,
		mails:    mails,
		deleted:  metrics.CountDeleted(watch.registry),
		registry: watch.registry,
		traces:   watch.traces,
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
	a.traces.Stop()
}

// sendMails starts the worker of mails, if there is one. The returned function waits until it has stopped, which it
// begins when ctx ends.
func (a *App) sendMails(ctx context.Context) (wait func()) {
	if a.mails == nil {
		return func() {}
	}
	ctx, stop := context.WithCancel(ctx)
	var worker sync.WaitGroup
	worker.Go(func() { a.mails.Run(ctx) })
	worker.Go(func() { a.queueWebhookMails(ctx) })
	return func() {
		stop()
		worker.Wait()
	}
}

// runMaintenance starts the deletion of records that are no longer needed, and the revocation of grants and tokens that
// a request left to the background. Both stop when ctx ends. The returned function waits until they have stopped.
func (a *App) runMaintenance(ctx context.Context) (wait func()) {
	ctx, stop := context.WithCancel(ctx)
	var worker sync.WaitGroup
	worker.Go(func() { a.Retention.Run(ctx, a.deleted, a.log) })
	worker.Go(func() { a.endGrants(ctx) })
	return func() {
		stop()
		worker.Wait()
	}
}

// endGrantsInterval is how often the database is queried for grants and tokens that a request left to the
// background.
const endGrantsInterval = time.Second

// endGrants ends the grants and tokens that a request left to the background (postgres.Store.EndNext) until ctx ends.
// After each part it waits as long as the part took, so that each process does this for at most half of the time.
func (a *App) endGrants(ctx context.Context) {
	failing := false
	for ctx.Err() == nil {
		began := time.Now()
		ended, found, err := a.Store.EndNext(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			a.log.WarnContext(ctx, "cannot revoke grants in the background yet; they are already refused; retrying",
				"error", err)
		}
		failing = err != nil
		for _, g := range ended {
			a.Grants.PropagateRevocation(ctx, g.ID, g.Ends, g.Reason)
		}
		rest := endGrantsInterval
		if found {
			rest = time.Since(began)
		}
		select {
		case <-ctx.Done():
		case <-time.After(rest):
		}
	}
}

// Serve serves until ctx ends, and then lets the requests in flight finish.
func (a *App) Serve(ctx context.Context) error {
	defer a.Close()
	defer a.sendMails(ctx)()
	endMetrics, err := metrics.Serve(a.config.MetricsListen, a.registry, a.log)
	if err != nil {
		return err
	}
	defer endMetrics()
	profile.OnSignal(ctx, a.config.Profiles, "authserver", a.log)
	go a.keys.Run(ctx)
	go a.Keyring.Run(ctx, a.log)
	defer a.runMaintenance(ctx)()
	go a.Failures.Share(ctx)
	return web.Serve(ctx, a.server, a.Handler, a.log, func(address net.Addr) {
		a.log.Info("listening", "address", address.String(), "issuer", a.config.BaseURL)
	})
}
