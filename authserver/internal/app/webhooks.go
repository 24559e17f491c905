package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/almonerhq/almoner/shared/publicnet"
)

// webhookNetwork returns the network in which webhook endpoints are allowed.
func (c *Config) webhookNetwork() (*publicnet.Network, error) {
	trusted, err := trusting(c.WebhookCA)
	if err != nil {
		return nil, fmt.Errorf("ALMONER_WEBHOOK_CA %w", err)
	}
	return publicnet.New(publicnet.Options{Trusted: trusted}), nil
}

// checkWebhooks reports mistakes in the settings of webhooks.
func (c *Config) checkWebhooks() []error {
	var mistakes []error
	if _, err := c.webhookNetwork(); err != nil {
		mistakes = append(mistakes, err)
	}
	// With this setting, users can enter URLs of the local machine. A server that other machines can reach must not
	// accept them.
	if c.WebhookCA != "" && !(onThisMachine(c.BaseURL) && onThisMachine(c.AppURL)) {
		mistakes = append(
			mistakes,
			errors.New(
				"ALMONER_WEBHOOK_CA is for development: ALMONER_BASE_URL and ALMONER_APP_URL must be addresses of "+
					"this machine"),
		)
	}
	return mistakes
}

// webhookMailInterval is how often the database is queried for webhook endpoints that resourceapi has disabled.
const webhookMailInterval = 10 * time.Second

// queueWebhookMails queues the mails about disabled webhook endpoints until ctx ends.
func (a *App) queueWebhookMails(ctx context.Context) {
	tick := time.NewTicker(webhookMailInterval)
	defer tick.Stop()
	failing := false
	for {
		_, err := a.Store.QueueWebhookMails(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			a.log.WarnContext(ctx, "mails about webhooks not queued; retrying", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
