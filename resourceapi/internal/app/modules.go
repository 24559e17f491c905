package app

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/net/publicnet"
	"github.com/almonerhq/almoner/shared/server"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/forms"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/mcp"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/programmes"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/publicforms"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/webhooks"
	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
	"github.com/almonerhq/almoner/resourceapi/internal/worker"
)

// routes are handlers by path and method.
type routes = map[string]map[string]http.Handler

// A module is a part of the API that a workspace may have.
type module struct {
	name   string // as in account.tenant_modules, and the first part of the module's permissions
	routes []routes
}

// modules returns the table of the modules. The routes derive from it, and with them the route labels of logs and
// metrics. The tests of permissions, access and the description (O1) read it too.
func modules(p parts, engage []routes) []module {
	return []module{
		{"programmes", []routes{(&programmes.Endpoint{
			BaseURL: p.config.BaseURL,
			Gate:    p.gate,
			Store:   p.store,
			Cursors: p.programmes,
		}).Routes()}},
		{"engage", engage},
	}
}

// newEngage returns the routes of the Engage module, and the work that processes submissions and sends webhooks.
func newEngage(p parts, webhooks worker.Webhooks) (all []routes, process func(context.Context), err error) {
	tokens, err := engage.NewTokens(p.keys)
	if err != nil {
		return nil, nil, err
	}
	store := p.store.Engage()
	processor := &worker.Worker{Store: store, Webhooks: webhooks, Log: p.log}
	forms := &forms.Endpoint{
		BaseURL:      p.config.BaseURL,
		Gate:         p.gate,
		Store:        store,
		Cursors:      p.lists,
		RecordExport: store.RecordExport,
	}
	public := &publicforms.Endpoint{
		BaseURL: p.config.BaseURL,
		Brand:   p.brand,
		Gate:    p.gate,
		Store:   store,
		Tokens:  tokens,
		Now:     time.Now,
		Address: p.proxies.ClientAddress,
		Count:   p.limits.Count,
	}
	return []routes{forms.Routes(), public.Routes()}, processor.Run, nil
}

// webhookParts serve and deliver webhooks. They implement worker.Webhooks.
type webhookParts struct {
	*postgres.Webhooks
	*delivery.Deliverer

	endpoint *webhooks.Endpoint
	keys     *webhook.Keys
	log      *slog.Logger
}

func newWebhooks(p parts) (webhookParts, error) {
	store := p.store.Webhooks()
	trusted, err := publicnet.TrustedPool(p.config.WebhookCA)
	if err != nil {
		return webhookParts{}, err
	}
	if trusted != nil {
		p.log.Warn("webhooks are delivered to this machine too, since ALMONER_WEBHOOK_CA is set")
	}
	network := publicnet.New(publicnet.Options{Trusted: trusted})
	keys, err := webhook.NewKeys(p.keys)
	if err != nil {
		return webhookParts{}, err
	}
	answers, err := seal.NewBox(p.keys, "webhook answer")
	if err != nil {
		return webhookParts{}, err
	}
	return webhookParts{
		endpoint: &webhooks.Endpoint{
			BaseURL: p.config.BaseURL,
			Gate:    p.gate,
			Store:   store,
			Cursors: p.lists,
			Network: network,
			Keys:    keys,
			Answers: answers,
		},
		Webhooks: store,
		keys:     keys,
		log:      p.log,
		Deliverer: delivery.New(delivery.Deps{
			Store:   store,
			Events:  store,
			Network: network,
			Keys:    keys,
			Count:   countDeliveries(p.watch.Registry, store, p.log),
			Now:     time.Now,
		}),
	}, nil
}

// publishInterval is how often the key for sealing secrets is compared with the published one.
const publishInterval = 3 * time.Second

// publishKey publishes the public key with which authserver seals secrets, and reseals secrets that are sealed with
// other keys. It does so at the start and after each change of the keys, until ctx ends.
func (w webhookParts) publishKey(ctx context.Context) {
	var published []byte
	server.Repeat(ctx, func(error) {}, func(ctx context.Context) (time.Duration, error) {
		key := w.keys.Public()
		if !bytes.Equal(key, published) && w.PublishWebhookKey(ctx, key) == nil {
			published = key
			w.reseal(ctx, key)
		}
		return publishInterval, nil
	})
}

// reseal seals secrets that are sealed with other keys with this public key.
func (w webhookParts) reseal(ctx context.Context, key []byte) {
	err := w.ResealWebhooks(ctx, key, func(id uuid.UUID, sealed webhook.Sealed) (webhook.Sealed, error) {
		secret, err := w.keys.Open(id, sealed)
		if err != nil {
			return webhook.Sealed{}, fmt.Errorf("webhook endpoint %s: its key is not in ALMONER_KEYS: %w", id, err)
		}
		return webhook.Seal(key, id, secret)
	})
	if err != nil && ctx.Err() == nil {
		w.log.WarnContext(ctx, "secrets of webhook endpoints not sealed with the newest key", "cause", err)
	}
}

// watchSubmissions registers metrics of the submissions that wait, which are counted at each scrape. All processes
// report the same submissions.
func watchSubmissions(registry *server.Registry, store *postgres.Store, log *slog.Logger) {
	jobs := prometheus.NewDesc("almoner_queue_jobs",
		"Submissions not processed yet: available, or retryable (failed, and tried again later). All processes "+
			"report the same submissions.", []string{"state"}, nil)
	oldest := prometheus.NewDesc("almoner_queue_oldest_job_seconds",
		"How long the oldest available submission has waited; 0 if none waits.", nil, nil)
	server.WatchGauges(registry, func(ctx context.Context, set server.SetGauge) {
		all, failed, age, err := store.WaitingSubmissions(ctx)
		if err != nil {
			log.Warn("waiting submissions not counted", "cause", err)
			return
		}
		set(jobs, float64(all-failed), "available")
		set(jobs, float64(failed), "retryable")
		set(oldest, age.Seconds())
	}, jobs, oldest)
}

// countTools registers the metric of the calls of tools, and returns a function that counts one.
func countTools(registry *server.Registry) func(tool string) {
	calls := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "almoner_tool_calls_total",
		Help: "Calls of MCP tools by callers with access, by tool; unknown if there is no such tool.",
	}, []string{"tool"})
	calls.WithLabelValues(mcp.UnknownTool)
	registry.MustRegister(calls)
	return func(tool string) { calls.WithLabelValues(tool).Inc() }
}

// countDeliveries registers metrics of webhooks, of which the number of endpoints by state is read at each scrape. It
// returns a function that counts one attempt of this process.
func countDeliveries(
	registry *server.Registry, store *postgres.Webhooks, log *slog.Logger,
) func(delivery.Outcome, time.Duration) {
	deliveries := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "almoner_webhook_deliveries_total",
		Help: "Attempts to deliver to webhook endpoints, by outcome: accepted, refused (another status than 2xx), " +
			"unreachable, not_public.",
	}, []string{"outcome"})
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "almoner_webhook_delivery_seconds",
		Help:    "How long webhook endpoints took to answer.",
		Buckets: []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10},
	})
	for _, outcome := range delivery.Outcomes() {
		deliveries.WithLabelValues(string(outcome))
	}
	registry.MustRegister(deliveries, seconds)
	endpoints := prometheus.NewDesc("almoner_webhook_endpoints",
		"Webhook endpoints by state: enabled, failing (enabled, and the last attempt failed), disabled. All "+
			"processes report the same endpoints.", []string{"state"}, nil)
	server.WatchGauges(registry, func(ctx context.Context, set server.SetGauge) {
		states, err := store.WebhookStates(ctx)
		if err != nil {
			log.Warn("webhook endpoints not counted", "cause", err)
			return
		}
		for state, n := range states {
			set(endpoints, float64(n), state)
		}
	}, endpoints)
	return func(outcome delivery.Outcome, took time.Duration) {
		deliveries.WithLabelValues(string(outcome)).Inc()
		seconds.Observe(took.Seconds())
	}
}
