// Package app builds authserver from its parts: configuration, wiring, routes and health. It is the only package that
// imports every other.
package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/gorilla/mux"
	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/protocol/authorize"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/signin"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/clientmetadata"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
	"github.com/almonerhq/almoner/authserver/internal/oauth/rehearsal"
	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/shared/config/secretfile"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/contract/usage"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/database/retention"
	"github.com/almonerhq/almoner/shared/net/publicnet"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/page/brand"
	"github.com/almonerhq/almoner/shared/server"
)

// An App is authserver, wired and ready to serve.
type App struct {
	Parts
	Options

	config      Config
	log         *slog.Logger
	keys        seal.Keys
	proxies     web.Proxies
	brand       brand.Brand
	resources   []string
	watch       server.Instruments
	probe       goredis.UniversalClient // for probes alone
	clients     *client.Registry
	members     *membership.Service
	connections *consent.Connections
	rehearsals  *rehearsal.Rehearsals
	logReads    audit.Reads
	accounts    *useraccount.Service
	offers      *membership.AccessOffers
	attempts    *session.Attempts
	pages       *ui.Pages
	settings    *settings.Settings
	consents    *authorize.Handler
	signIn      *signin.Handler
	mailing     []func(context.Context) // background work that sends mails
	endLastUse  func()
	usage       *usage.Counter
}

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
	Failures  *ratelimit.Limiter // of refusals; its Share runs only in Serve
	Retention *retention.Store   // Serve calls its Run
	Router    *mux.Router        // has every route
	Handler   http.Handler       // serves every route
}

// New wires the parts. It does not wait for a store: one that is down at the start gives a 503, not a crash.
func New(ctx context.Context, c Config, log *slog.Logger, replaced ...func(*Options)) (*App, error) {
	a := &App{config: c, log: log, resources: perm.Identifiers(c.BaseURL), endLastUse: func() {}}
	a.Options = Options{Now: time.Now, FailuresClock: time.Now, Cost: session.StandardCost()}
	for _, replace := range replaced {
		replace(&a.Options)
	}
	var errs [3]error
	a.keys, errs[0] = seal.ParseKeys(c.Keys)
	a.proxies, errs[1] = web.ParseProxies(c.TrustedProxies)
	a.brand, errs[2] = c.Options.Read()
	err := errors.Join(errs[:]...)
	if err == nil {
		a.watch, err = server.NewInstruments(ctx, "authserver", c.TraceSettings, log)
	}
	if err != nil {
		return nil, err
	}
	if err := a.openStores(ctx); err != nil {
		return nil, err
	}
	for _, build := range []func() error{a.newEngine, a.newMail, a.newPages, a.newHandler} {
		if err := build(); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// openStores opens the stores.
func (a *App) openStores(ctx context.Context) (err error) {
	c := a.config
	if a.Store, err = postgres.Open(ctx, c.databases(a.log), c.StoreWait, a.watch.Statements()...); err != nil {
		return err
	}
	if err = sealSecrets(a.Store, a.keys); err != nil {
		return err
	}
	url := secretfile.Redis("ALMONER_REDIS_URL", c.reading.File("ALMONER_REDIS_URL"), c.RedisURL, a.log)
	if a.Redis, err = redis.Connect(url, c.StoreWait); err != nil {
		return err
	}
	if a.probe, err = redis.ConnectProbe(url); err != nil {
		return err
	}
	if a.usage, err = a.Store.UsageCounter(a.log); err != nil {
		return err
	}
	a.Retention = a.Store.Retention(c.RetentionSettings.periods())
	server.WatchPostgres(a.watch.Registry, "requests", a.Store.PoolStat)
	if a.Store.HasRefreshPool() {
		server.WatchPostgres(a.watch.Registry, "refreshes", a.Store.RefreshPoolStat)
	}
	server.WatchRedis(a.watch.Registry, a.Redis)
	return a.watch.Commands(a.Redis)
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

// newEngine creates the keyring, the grant service, the client registry, the engine, the limiter of refusals, and their
// metrics.
func (a *App) newEngine() (err error) {
	c := a.config
	if a.Keyring, err = keyring.New(a.Store, a.keys); err != nil {
		return err
	}
	a.Keyring.RotateAfter(c.KeyMaxAge)
	codec, err := grant.NewTokenCodec(a.keys)
	if err != nil {
		return err
	}
	a.Grants = grant.NewService(a.Store, redis.NewGrants(a.Redis), codec, a.log)
	a.Grants.WaitForStores(c.StoreWait)
	a.clients = &client.Registry{
		Store:               a.Store,
		PropagateRevocation: a.propagate(grant.ClientDeleted),
		Now:                 a.Now,
		Random:              rand.Reader,
	}
	if err := a.newDocuments(); err != nil {
		return err
	}
	a.Engine = engine.New(engine.Deps{
		Issuer:       c.BaseURL,
		RESTResource: a.resources[0],
		Resources:    a.resources,
		Clients:      a.Store,
		Documents:    a.Documents,
		Assertions: &clientmetadata.Verifier{
			Documents: a.Documents,
			Replays:   redis.NewReplayCache(a.Redis),
			Audiences: []string{c.BaseURL, c.BaseURL + "/v1/account/oauth/token"},
			Now:       a.Now,
		},
		Grants: a.Grants,
		Signer: a.Keyring,
	})
	a.Engine.RecordRefusals(a.Store, a.Now, a.log)
	a.Failures = ratelimit.NewLimiter(redis.NewRateLimits(a.Redis), a.log, a.FailuresClock)
	counts := newOAuthMetrics(a.watch.Registry)
	a.Grants.ObserveRevocations(counts.countRevocation)
	a.Engine.Observe(counts.countRequest)
	a.Failures.ObserveThrottled(counts.countThrottled)
	return nil
}

// newDocuments makes the resolver of metadata documents. It resolves none if no domain is configured.
func (a *App) newDocuments() error {
	domains, err := client.ParseDomains(a.config.ClientDomains)
	if err != nil {
		return fmt.Errorf("client domains: %w", err)
	}
	trusted, err := publicnet.TrustedPool(a.config.ClientDocumentCA)
	if err != nil {
		return err
	}
	a.Documents = clientmetadata.New(clientmetadata.Deps{
		Domains: domains,
		Trusted: trusted,
		Cache:   a.Store.Clients,
		Now:     a.Now,
		Log:     a.log,
	})
	return nil
}

// newMail makes the store queue mails, and creates the background work that sends them. It does nothing if the
// deployment sends no mail.
func (a *App) newMail() error {
	c := a.config
	if !c.sendsMail() {
		return nil
	}
	if err := queueMail(a.Store, a.keys, a.Now); err != nil {
		return err
	}
	server, err := mail.ParseServer(c.SMTPURL)
	if err != nil {
		return fmt.Errorf("ALMONER_SMTP_URL %w", err)
	}
	from, err := mail.ParseFrom(c.MailFrom)
	if err != nil {
		return fmt.Errorf("ALMONER_MAIL_FROM %w", err)
	}
	worker, err := mail.NewWorker(a.Store.JobDriver(), mail.WorkerDeps{
		Schema:  postgres.MailSchema,
		Keys:    a.keys,
		AppURL:  c.AppURL,
		Brand:   a.brand,
		Contact: c.ContactOptions.Read(),
		Sender:  mail.NewSender(server, from, a.Now),
		Prepare: map[mail.Kind]func(context.Context, *mail.Message) (bool, error){
			mail.Reset: a.prepareReset,
		},
		Periodic: a.queuePeriodicMails,
		Poll:     a.MailPoll,
		Count:    countMails(a.watch.Registry, a.Store.MailsWaiting),
		Now:      a.Now,
		Log:      a.log,
	})
	if err == nil {
		a.mailing = []func(context.Context){worker.Run, a.queueNotedMails}
	}
	return err
}

// queueMail makes the store queue the mails of its changes.
func queueMail(store *postgres.Store, keys seal.Keys, now func() time.Time) error {
	queue, err := mail.NewQueue[pgx.Tx](store.JobDriver(), postgres.MailSchema, keys, now)
	if err != nil {
		return err
	}
	store.SendMail(queue)
	return nil
}

// prepareReset stores the link of a mail. The page that queues the mail does not know whether the address has an
// account, so that its response and its time are the same for all addresses.
func (a *App) prepareReset(ctx context.Context, m *mail.Message) (bool, error) {
	event := audit.Anonymous(audit.UserResetRequested, "", "", m.Data.Network)
	to, made, err := a.Store.BeginReset(ctx, m.Address, password.HashToken(m.Token), m.Expires, event)
	if err != nil || !made {
		return false, err
	}
	recipient, err := a.Store.MailRecipient(ctx, to.ID)
	*m = m.To(recipient)
	return err == nil, err
}

// queuePeriodicMails queues the mails that depend on the time.
func (a *App) queuePeriodicMails(ctx context.Context) error {
	return errors.Join(a.Store.MailExpiringTokens(ctx), a.Store.MailEndingConnections(ctx))
}

// queueNotedMails looks every ten seconds for what the processes of both services have noted, and queues the mails
// about it, until ctx ends: webhook endpoints that were added or disabled, and new networks of credentials.
func (a *App) queueNotedMails(ctx context.Context) {
	failing := func(err error) { a.log.WarnContext(ctx, "mails not queued; retrying", "error", err) }
	server.Repeat(ctx, failing, func(ctx context.Context) (time.Duration, error) {
		_, err := a.Store.QueueWebhookMails(ctx)
		return cmp.Or(a.MailPoll, 10*time.Second), errors.Join(err, a.Store.QueueNetworkMails(ctx))
	})
}

// propagate returns a function that revokes in Redis what ended for the reason, when the transaction of its context is
// committed.
func (a *App) propagate(reason grant.Reason) func(context.Context, []useraccount.EndedGrant) {
	return func(ctx context.Context, ended []useraccount.EndedGrant) {
		postgres.AfterCommit(ctx, func() {
			for _, g := range ended {
				a.Grants.PropagateRevocation(ctx, g.ID, g.Ends, reason)
			}
		})
	}
}

// endGrants looks every second for grants and tokens that a request left to the background (postgres.Store.EndNext),
// and ends them, until ctx ends. After each part it waits as long as the part took, so that each process does this for
// at most half of the time.
func (a *App) endGrants(ctx context.Context) {
	failing := func(err error) {
		a.log.WarnContext(ctx, "cannot revoke grants in the background yet; they are already refused; retrying",
			"error", err)
	}
	server.Repeat(ctx, failing, func(ctx context.Context) (rest time.Duration, err error) {
		began := time.Now()
		ended, found, err := a.Store.EndNext(ctx)
		for _, g := range ended {
			a.Grants.PropagateRevocation(ctx, g.ID, g.Ends, g.Reason)
		}
		if found {
			return time.Since(began), err
		}
		return time.Second, err
	})
}

// parts returns what the process needs. Redis is reported but not required: without it, codes and refresh tokens get a
// 503, while sign-in, settings and introspection work. The same holds for the database of refreshes, whose check uses
// the pool of refreshes: a flood of refreshes delays the response by up to a second. a.probe and a.Store.Ready have
// connections of their own, so that a flood of other requests neither delays nor fails the check.
func (a *App) parts() server.Parts {
	parts := server.Parts{
		{Name: "postgres", Check: a.Store.Ready, Required: true},
		{Name: "redis", Check: func(ctx context.Context) error { return a.probe.Ping(ctx).Err() }},
		{Name: "keys", Check: a.Keyring.Ready, Required: true},
	}
	if a.Store.HasRefreshPool() {
		parts = append(parts, server.Part{Name: "refreshes", Check: a.Store.PingRefreshes})
	}
	return parts
}

// ready reports whether the process can do its work.
func (a *App) ready(w http.ResponseWriter, r *http.Request) {
	if web.Leaving(r.Context()) {
		web.JSON(w, http.StatusServiceUnavailable, map[string]string{"status": "leaving"})
		return
	}
	status := http.StatusOK
	states := a.parts().States(r.Context(), func(part server.Part, err error) bool {
		a.log.WarnContext(r.Context(), "dependency unavailable", "part", part.Name, "error", err)
		if part.Required {
			status = http.StatusServiceUnavailable
		}
		return true
	})
	web.JSON(w, status, states)
}

// Close stops background work and closes the connections to the stores.
func (a *App) Close() {
	a.usage.Close()
	a.endLastUse()
	a.Store.Close()
	_ = a.Redis.Close() // no commands are pending
	a.watch.Stop()
}

// Serve serves until ctx ends, and then lets the requests in flight finish.
func (a *App) Serve(ctx context.Context) error {
	defer a.Close()
	c := a.config
	server.ProfileOnSignal(ctx, c.Profiles, "authserver", a.log)
	process := server.Process{
		Server:   web.Server{Address: c.Listen, Notice: c.Notice, Ready: a.parts().Ready},
		Handler:  a.Handler,
		Metrics:  c.MetricsListen,
		Registry: a.watch.Registry,
		Log:      a.log,
	}
	deleted := server.CountDeleted(a.watch.Registry)
	works := append(a.mailing,
		secretfile.Keys("ALMONER_KEYS", c.reading.File("ALMONER_KEYS"), c.Keys, a.keys, a.log),
		func(ctx context.Context) { a.Keyring.Run(ctx, a.log) },
		func(ctx context.Context) { a.Retention.Run(ctx, deleted, a.log) },
		a.endGrants,
		a.Failures.Share,
	)
	ready := func(address net.Addr) { a.log.Info("listening", "address", address.String(), "issuer", c.BaseURL) }
	return process.Run(ctx, ready, false, works...)
}

// Options are parts that New would create otherwise. Only tests replace them: they build the same service with other
// clocks, another recorder, and cheap password hashes.
type Options struct {
	Now           func() time.Time // the stores keep their own clocks
	FailuresClock func() time.Time // of the limit of failed requests
	LastUse       interface {
		Record(standing.Standing, netip.Addr)
	} // nil: one that writes to Postgres
	Cost     session.Cost  // of the dummy password hash
	MailPoll time.Duration // between two looks for mails; 0: the usual times
}
