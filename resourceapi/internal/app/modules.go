package app

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/config/secretfile"
	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/net/publicnet"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
	"github.com/almonerhq/almoner/shared/server"
	"github.com/almonerhq/almoner/shared/server/metrics"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/forms"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/programmes"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/publicforms"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/webhooks"
	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	queuemetrics "github.com/almonerhq/almoner/resourceapi/internal/metrics"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
	"github.com/almonerhq/almoner/resourceapi/internal/store/redis"
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
func modules(p parts, cursors *rest.Cursors, engaged *engageModule) []module {
	return []module{
		{"programmes", []routes{programmes.New(programmes.Deps{
			BaseURL: p.config.BaseURL,
			Gate:    p.gate,
			Store:   p.store,
			Cursors: cursors,
		}).Routes()}},
		{"engage", []routes{engaged.forms.Routes(), engaged.public.Routes()}},
	}
}

// engageModule is the parts of the Engage module.
type engageModule struct {
	forms  *forms.Endpoint
	public *publicforms.Endpoint
	worker interface{ Run(context.Context) }
	limits *redis.Limits
}

func newEngage(p parts, proxies web.Proxies, webhooks worker.Webhooks) (*engageModule, error) {
	tokens, err := engage.NewTokens(p.keys)
	if err != nil {
		return nil, err
	}
	c, store, log := p.config, p.store, p.log
	queue, err := worker.NewQueue(store.JobDriver(), postgres.JobSchema)
	if err != nil {
		return nil, err
	}
	engageStore := store.Engage(queue)
	processor, err := worker.New(store.JobDriver(), worker.Deps{
		Schema:      postgres.JobSchema,
		Submissions: engageStore,
		Webhooks:    webhooks,
		Events:      store,
		Log:         log,
	})
	if err != nil {
		return nil, err
	}
	redisURL := secretfile.Redis("ALMONER_REDIS_URL", c.reading.File("ALMONER_REDIS_URL"), c.RedisURL, log)
	limits, err := redis.ConnectFromSource(redisURL, c.StoreWait, log, time.Now)
	if err != nil {
		return nil, err
	}
	return &engageModule{
		forms: forms.New(forms.Deps{BaseURL: c.BaseURL, Gate: p.gate, Store: engageStore, Cursors: p.lists}),
		public: publicforms.New(publicforms.Deps{
			BaseURL:        c.BaseURL,
			Brand:          p.brand,
			Store:          engageStore,
			Tokens:         tokens,
			Now:            time.Now,
			Address:        proxies.ClientAddress,
			Count:          limits.Count,
			Refuse:         p.gate.Refuse,
			LogServerError: p.gate.LogServerError,
		}),
		worker: processor,
		limits: limits,
	}, nil
}

// webhookParts serve and deliver webhooks. They implement worker.Webhooks.
type webhookParts struct {
	*postgres.Webhooks
	*delivery.Deliverer

	endpoint *webhooks.Endpoint
	keys     *webhook.Keys
	log      *slog.Logger
}

func newWebhooks(p parts, registry *metrics.Registry) (webhookParts, error) {
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
	answers, err := webhooks.NewAnswers(p.keys)
	if err != nil {
		return webhookParts{}, err
	}
	var outcomes []string
	for _, outcome := range delivery.Outcomes() {
		outcomes = append(outcomes, string(outcome))
	}
	counts := queuemetrics.NewWebhooks(registry, outcomes, store.WebhookStates, p.log)
	return webhookParts{
		endpoint: webhooks.New(webhooks.Deps{
			BaseURL: p.config.BaseURL,
			Gate:    p.gate,
			Store:   store,
			Cursors: p.lists,
			Network: network,
			Keys:    keys,
			Answers: answers,
		}),
		Webhooks: store,
		keys:     keys,
		log:      p.log,
		Deliverer: delivery.New(delivery.Deps{
			Store:   store,
			Network: network,
			Keys:    keys,
			Count:   func(o delivery.Outcome, took time.Duration) { counts.Count(string(o), took) },
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
