package app

import (
	"fmt"
	"log/slog"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/clientassertion"
	"github.com/almonerhq/almoner/authserver/internal/oauth/clientmetadata"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/shared/net/publicnet"
)

// newDocuments returns the resolver of metadata documents. It resolves none if no domain is configured.
func newDocuments(
	c Config, store *postgres.Store, now func() time.Time, log *slog.Logger,
) (*clientmetadata.Resolver, error) {
	domains, err := client.ParseDomains(c.ClientDomains)
	if err != nil {
		return nil, fmt.Errorf("client domains: %w", err)
	}
	trusted, err := publicnet.TrustedPool(c.ClientDocumentCA)
	if err != nil {
		return nil, err
	}
	return clientmetadata.New(clientmetadata.Deps{
		Domains:   domains,
		Trusted:   trusted,
		CheckKeys: clientassertion.CheckKeys,
		Cache:     store.Clients,
		Now:       now,
		Log:       log,
	}), nil
}

// newAssertionVerifier returns the verifier of client assertions.
func newAssertionVerifier(
	c Config, documents *clientmetadata.Resolver, rdb goredis.UniversalClient, now func() time.Time,
) *clientassertion.Verifier {
	return &clientassertion.Verifier{
		Documents: documents,
		Replays:   redis.NewReplayCache(rdb),
		Audiences: []string{c.BaseURL, c.BaseURL + "/v1/account/oauth/token"},
		Now:       now,
	}
}

// servesDocuments reports whether clients may use metadata documents.
func (c *Config) servesDocuments() bool {
	domains, err := client.ParseDomains(c.ClientDomains)
	return err == nil && len(domains) > 0
}

// webhookNetwork returns the network in which webhook endpoints are allowed.
func (c *Config) webhookNetwork() (*publicnet.Network, error) {
	trusted, err := publicnet.TrustedPool(c.WebhookCA)
	if err != nil {
		return nil, fmt.Errorf("ALMONER_WEBHOOK_CA %w", err)
	}
	return publicnet.New(publicnet.Options{Trusted: trusted}), nil
}
