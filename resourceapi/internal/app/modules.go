package app

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/net/publicnet"
	"github.com/almonerhq/almoner/shared/server"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/forms"
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
	queue, err := worker.NewQueue(p.store.JobDriver(), postgres.JobSchema)
	if err != nil {
		return nil, nil, err
	}
	store := p.store.Engage(queue)
	processor, err := worker.New(p.store.JobDriver(), worker.Deps{
		Schema:      postgres.JobSchema,
		Submissions: store,
		Webhooks:    webhooks,
		Events:      store,
		Log:         p.log,
	})
	if err != nil {
		return nil, nil, err
	}
	forms := &forms.Endpoint{
		BaseURL:      p.config.BaseURL,
		Gate:         p.gate,
		Store:        store,
		Cursors:      p.lists,
		RecordExport: store.RecordExport,
	}
	public := &publicforms.Endpoint{
		BaseURL:        p.config.BaseURL,
		Brand:          p.brand,
		Store:          store,
		Tokens:         tokens,
		Now:            time.Now,
		Address:        p.proxies.ClientAddress,
		Count:          p.limits.Count,
		Refuse:         p.gate.Refuse,
		LogServerError: p.gate.LogServerError,
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
	answers, err := webhooks.NewAnswers(p.keys)
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
