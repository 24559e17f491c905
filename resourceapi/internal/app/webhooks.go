package app

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/metrics"
	"github.com/almonerhq/almoner/shared/publicnet"
	"github.com/almonerhq/almoner/shared/seal"
	"github.com/almonerhq/almoner/shared/webhook"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/webhooks"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/list"
	queuemetrics "github.com/almonerhq/almoner/resourceapi/internal/metrics"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
)

// webhookParts serve and deliver webhooks.
type webhookParts struct {
	endpoint *webhooks.Endpoint
	keys     *webhook.Keys
	store    *postgres.Webhooks
	*delivery.Deliverer
	log *slog.Logger
}

func newWebhooks(
	c Config, master seal.Keys, cursors *list.Cursors, guard *gate.Gate, stored *postgres.Store,
	registry *metrics.Registry, log *slog.Logger,
) (webhookParts, error) {
	store := stored.Webhooks()
	trusted, err := c.webhookCA()
	if err != nil {
		return webhookParts{}, err
	}
	if trusted != nil {
		log.Warn("webhooks are delivered to this machine too, since ALMONER_WEBHOOK_CA is set")
	}
	network := publicnet.New(publicnet.Options{Trusted: trusted})
	keys, err := webhook.NewKeys(master)
	if err != nil {
		return webhookParts{}, err
	}
	answers, err := webhooks.NewAnswers(master)
	if err != nil {
		return webhookParts{}, err
	}
	var outcomes []string
	for _, outcome := range delivery.Outcomes() {
		outcomes = append(outcomes, string(outcome))
	}
	counts := queuemetrics.NewWebhooks(registry, outcomes, store.WebhookStates, log)
	return webhookParts{
		endpoint: webhooks.New(webhooks.Deps{
			BaseURL: c.BaseURL,
			Gate:    guard,
			Store:   store,
			Cursors: cursors,
			Network: network,
			Keys:    keys,
			Answers: answers,
		}),
		keys:  keys,
		store: store,
		log:   log,
		Deliverer: delivery.New(delivery.Deps{
			Store:   store,
			Network: network,
			Keys:    keys,
			Count:   func(o delivery.Outcome, took time.Duration) { counts.Count(string(o), took) },
			Now:     time.Now,
		}),
	}, nil
}

// DueWebhooks implements worker.Webhooks.
func (p webhookParts) DueWebhooks(ctx context.Context, limit int) (map[uuid.UUID]uuid.UUID, error) {
	return p.store.DueWebhooks(ctx, limit)
}

// publishInterval is how often the key for sealing secrets is compared with the published one.
const publishInterval = 3 * time.Second

// publishKey publishes the public key with which authserver seals secrets, and reseals secrets that are sealed with
// other keys. It does so at the start and after each change of the keys, until ctx ends.
func (p webhookParts) publishKey(ctx context.Context) {
	tick := time.NewTicker(publishInterval)
	defer tick.Stop()
	var published []byte
	for {
		key := p.keys.Public()
		if !bytes.Equal(key, published) && p.store.PublishWebhookKey(ctx, key) == nil {
			published = key
			p.reseal(ctx, key)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// reseal seals secrets that are sealed with other keys with this public key.
func (p webhookParts) reseal(ctx context.Context, key []byte) {
	err := p.store.ResealWebhooks(ctx, key, func(id uuid.UUID, sealed webhook.Sealed) (webhook.Sealed, error) {
		secret, err := p.keys.Open(id, sealed)
		if err != nil {
			return webhook.Sealed{}, fmt.Errorf("webhook endpoint %s: its key is not in ALMONER_KEYS: %w", id, err)
		}
		return webhook.Seal(key, id, secret)
	})
	if err != nil && ctx.Err() == nil {
		p.log.WarnContext(ctx, "secrets of webhook endpoints not sealed with the newest key", "cause", err)
	}
}

// webhookCA returns nil, except in development.
func (c *Config) webhookCA() (*x509.CertPool, error) {
	if c.WebhookCA == "" {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM([]byte(c.WebhookCA)) {
		return nil, errors.New("contains no PEM certificate")
	}
	return pool, nil
}

// checkWebhooks reports mistakes in the settings of webhooks.
func (c *Config) checkWebhooks() []error {
	var mistakes []error
	if _, err := c.webhookCA(); err != nil {
		mistakes = append(mistakes, fmt.Errorf("ALMONER_WEBHOOK_CA %w", err))
	}
	// With this setting, users can enter URLs of the local machine. A server that other machines can reach must not
	// call them.
	if c.WebhookCA != "" && !onThisMachine(c.BaseURL) {
		mistakes = append(mistakes,
			errors.New("ALMONER_WEBHOOK_CA is for development: ALMONER_BASE_URL must be an address of this machine"))
	}
	return mistakes
}

func onThisMachine(address string) bool {
	parsed, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(parsed.Hostname())
	return parsed.Hostname() == "localhost" || (err == nil && ip.IsLoopback())
}
