package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/gorilla/mux"
	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/api"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/protocol/token"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/protocol/wellknown"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	oauthmetrics "github.com/almonerhq/almoner/authserver/internal/metrics"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/clientmetadata"
	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/shared/config/secretfile"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/database/retention"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
	"github.com/almonerhq/almoner/shared/server"
	"github.com/almonerhq/almoner/shared/server/inflight"
)

// A core is what most parts need: the settings, the stores, and what decides about grants and tokens.
type core struct {
	options
	config    Config
	log       *slog.Logger
	keys      seal.Keys
	proxies   web.Proxies
	resources []string
	watch     server.Instruments
	store     *postgres.Store
	rdb       goredis.UniversalClient
	probe     goredis.UniversalClient // for probes alone
	ring      *keyring.Keyring
	grants    *grant.Service
	clients   *client.Registry
	documents *clientmetadata.Resolver
	engine    *engine.Engine
	limiter   *ratelimit.Limiter // of refusals
}

func newCore(ctx context.Context, c Config, o options, log *slog.Logger) (k core, err error) {
	k = core{options: o, config: c, log: log, resources: perm.Identifiers(c.BaseURL)}
	if k.keys, err = seal.ParseKeys(c.Keys); err != nil {
		return k, err
	}
	if k.proxies, err = web.ParseProxies(c.TrustedProxies); err != nil {
		return k, err
	}
	if k.watch, err = server.NewInstruments(ctx, "authserver", c.TraceSettings, log); err != nil {
		return k, err
	}
	if k.store, k.rdb, k.probe, err = openStores(ctx, c, k.keys, k.watch, log); err != nil {
		return k, err
	}
	if k.ring, err = keyring.New(k.store, k.keys); err != nil {
		return k, err
	}
	k.ring.RotateAfter(c.KeyMaxAge)
	codec, err := grant.NewTokenCodec(k.keys)
	if err != nil {
		return k, err
	}
	k.grants = grant.NewService(k.store, redis.NewGrants(k.rdb), codec, log)
	k.grants.WaitForStores(c.StoreWait)
	k.clients = &client.Registry{
		Store:               k.store,
		PropagateRevocation: propagate(k.grants, grant.ClientDeleted),
		Now:                 o.now,
		Random:              rand.Reader,
	}
	if k.documents, err = newDocuments(c, k.store, o.now, log); err != nil {
		return k, err
	}
	k.engine = engine.New(engine.Deps{
		Issuer:       c.BaseURL,
		RESTResource: k.resources[0],
		Resources:    k.resources,
		Clients:      k.store,
		Documents:    k.documents,
		Assertions:   newAssertionVerifier(c, k.documents, k.rdb, o.now),
		Grants:       k.grants,
		Signer:       k.ring,
	})
	k.engine.RecordRefusals(k.store, o.now, log)
	k.limiter = ratelimit.NewLimiter(redis.NewRateLimits(k.rdb), log, o.failures)
	counts := oauthmetrics.New(k.watch.Registry)
	k.grants.ObserveRevocations(counts.CountRevocation)
	k.engine.Observe(counts.CountRequest)
	k.limiter.ObserveThrottled(counts.CountThrottled)
	return k, nil
}

// browser returns the handlers of the pages.
func (k core) browser(people *membership.Service) (browser, error) {
	shown, err := k.config.Options.Read()
	if err != nil {
		return browser{}, err
	}
	pages, err := ui.New(k.log)
	if err != nil {
		return browser{}, err
	}
	pages.SetBrand(shown)
	return newBrowser(browserDeps{
		core:     k,
		counters: redis.NewLoginCounters(k.rdb),
		pages:    pages,
		members:  people,
		accounts: accountsOf(k.store, k.grants),
	})
}

// handlers returns the handlers of the routes, except the one that reports readiness.
func (k core) handlers(b browser, people *membership.Service, uses UsageRecorder) (handlers, error) {
	metadata, err := wellknown.Metadata(k.config.BaseURL, k.config.AppURL, k.config.servesDocuments())
	if err != nil {
		return handlers{}, fmt.Errorf("metadata: %w", err)
	}
	lists, err := rest.NewCursors(k.keys, "account cursor")
	if err != nil {
		return handlers{}, err
	}
	account := &api.Deps{
		Issuer:    k.config.BaseURL,
		Resource:  k.resources[0],
		Resources: k.resources,
		Keys:      k.ring.Public,
		Uses:      uses,
		Bounds:    inflight.NewCredentials(0),
		Clients:   k.clients,
		Members:   people,
		Store: api.Store{
			Credentials:  k.store.Grants,
			Applications: k.store.Clients,
			People:       k.store.Accounts,
			AnswerStore:  k.store.Clients,
		},
		Variables: mux.Vars,
		Cursors:   lists,
		Now:       k.now,
		Log:       k.log,
	}
	return handlers{
		tokens:         k.tokens(uses),
		authorizeAlias: redirectTo(k.config.AppURL + "/oauth/authorize"),
		jwks:           wellknown.Document(k.ring.JWKS),
		metadata:       wellknown.Document(func() ([]byte, error) { return metadata, nil }),
		account:        account.Routes(),
		browser:        b,
		deprecated:     rest.Deprecated(),
		alive:          server.Alive(),
		withKeys:       func(next http.Handler) http.Handler { return withKeys(k.ring, k.log, next) },
	}, nil
}

func (k core) tokens(uses UsageRecorder) token.Endpoints {
	return token.Endpoints{
		Issuer:   k.config.BaseURL,
		Resource: k.resources[0],
		Engine:   k.engine,
		Grants:   k.grants,
		Store:    k.store,
		Keys:     k.ring.Public,
		Uses:     uses,
		Failures: k.limiter,
		Proxies:  k.proxies,
		Now:      k.now,
		Log:      k.log,
	}
}

// works returns what runs in the background, besides mail.
func (k core) works(expired *retention.Store) []func(context.Context) {
	deleted := server.CountDeleted(k.watch.Registry)
	return []func(context.Context){
		secretfile.NewKeys("ALMONER_KEYS", k.config.reading.File("ALMONER_KEYS"), k.config.Keys, k.keys, k.log).Run,
		func(ctx context.Context) { k.ring.Run(ctx, k.log) },
		func(ctx context.Context) { expired.Run(ctx, deleted, k.log) },
		func(ctx context.Context) { endGrants(ctx, k.store, k.grants, k.log) },
		k.limiter.Share,
	}
}

func (k core) parts(b browser, expired *retention.Store) Parts {
	return Parts{
		Store:     k.store,
		Redis:     k.rdb,
		Grants:    k.grants,
		Engine:    k.engine,
		Keyring:   k.ring,
		Documents: k.documents,
		Sessions:  b.sessions,
		Passwords: b.passwords,
		Failures:  k.limiter,
		Retention: expired,
	}
}

// propagate returns a function that revokes in Redis what ended for the reason, when the transaction of its context is
// committed.
func propagate(grants *grant.Service, reason grant.Reason) func(context.Context, []useraccount.EndedGrant) {
	return func(ctx context.Context, ended []useraccount.EndedGrant) {
		postgres.AfterCommit(ctx, func() {
			for _, g := range ended {
				grants.PropagateRevocation(ctx, g.ID, g.Ends, reason)
			}
		})
	}
}

// membersOf returns the service of members and invitations.
func membersOf(store *postgres.Store, grants *grant.Service, c Config) *membership.Service {
	return &membership.Service{
		Store:               store,
		PropagateRevocation: propagate(grants, grant.MembershipOver),
		AppURL:              c.AppURL,
		Mails:               c.sendsMail(),
		Random:              rand.Reader,
	}
}

// accountsOf returns the service that changes and deletes accounts.
func accountsOf(store *postgres.Store, grants *grant.Service) *useraccount.Service {
	return &useraccount.Service{
		Deletions:           store,
		EmailChanges:        store,
		PropagateRevocation: propagate(grants, grant.MembershipOver),
		Random:              rand.Reader,
	}
}

// openStores opens the stores. probe is a connection to Redis for probes alone.
func openStores(ctx context.Context, c Config, keys seal.Keys, watch server.Instruments, log *slog.Logger) (
	store *postgres.Store, rdb, probe goredis.UniversalClient, err error,
) {
	if store, err = postgres.Open(ctx, c.databases(log), c.StoreWait, watch.Statements()...); err != nil {
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
	server.WatchPostgres(watch.Registry, "requests", store.PoolStat)
	if store.HasRefreshPool() {
		server.WatchPostgres(watch.Registry, "refreshes", store.RefreshPoolStat)
	}
	server.WatchRedis(watch.Registry, rdb.PoolStats)
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
