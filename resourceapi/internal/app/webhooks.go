package app

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"

	"github.com/almonerhq/almoner/shared/publicnet"
	"github.com/almonerhq/almoner/shared/seal"
	"github.com/almonerhq/almoner/shared/webhook"

	"github.com/almonerhq/almoner/resourceapi/internal/endpoint/webhooks"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
	"github.com/almonerhq/almoner/resourceapi/internal/list"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
)

// webhookParts are the parts of webhooks.
type webhookParts struct {
	endpoint *webhooks.Endpoint
	network  *publicnet.Network
	keys     *webhook.Keys
}

func newWebhooks(
	c Config,
	master seal.Keys,
	cursors *list.Cursors,
	guard *gate.Gate,
	store *postgres.Store,
	log *slog.Logger,
) (webhookParts, error) {
	trusted, err := c.webhookCA()
	if err != nil {
		return webhookParts{}, err
	}
	if trusted != nil {
		log.Warn("webhooks are delivered to this machine too, since ALMONER_WEBHOOK_CA is set")
	}
	parts := webhookParts{network: publicnet.New(publicnet.Options{Trusted: trusted})}
	if parts.keys, err = webhook.NewKeys(master); err != nil {
		return webhookParts{}, err
	}
	answers, err := webhooks.NewAnswers(master)
	if err != nil {
		return webhookParts{}, err
	}
	parts.endpoint = webhooks.New(webhooks.Deps{
		BaseURL: c.BaseURL,
		Gate:    guard,
		Store:   store.Webhooks(),
		Cursors: cursors,
		Network: parts.network,
		Keys:    parts.keys,
		Answers: answers,
	})
	return parts, nil
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
	// With this setting, users choose URLs of the local machine. A server that others can reach must not call them.
	if c.WebhookCA != "" && !onThisMachine(c.BaseURL) {
		mistakes = append(
			mistakes,
			errors.New("ALMONER_WEBHOOK_CA is for development: ALMONER_BASE_URL must be an address of this machine"),
		)
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
