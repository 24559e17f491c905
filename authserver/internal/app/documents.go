package app

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/clientassertion"
	"github.com/almonerhq/almoner/authserver/internal/oauth/clientmetadata"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
)

// newDocuments returns the resolver of metadata documents. It resolves none if no domain is configured.
func newDocuments(
	c Config, store *postgres.Store, now func() time.Time, log *slog.Logger,
) (*clientmetadata.Resolver, error) {
	domains, err := client.ParseDomains(c.ClientDomains)
	if err != nil {
		return nil, fmt.Errorf("client domains: %w", err)
	}
	trusted, err := c.documentCA()
	if err != nil {
		return nil, err
	}
	return clientmetadata.New(clientmetadata.Deps{
		Domains:   domains,
		Trusted:   trusted,
		CheckKeys: clientassertion.CheckKeys,
		Cache:     store,
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

// documentCA returns nil, except in development.
func (c *Config) documentCA() (*x509.CertPool, error) { return trusting(c.ClientDocumentCA) }

// trusting returns a pool of the system's certificates and the given ones, or nil if none are given.
func trusting(certificates string) (*x509.CertPool, error) {
	if certificates == "" {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM([]byte(certificates)) {
		return nil, errors.New("contains no PEM certificate")
	}
	return pool, nil
}

// checkDocuments reports mistakes in the settings for metadata documents.
func (c *Config) checkDocuments() []error {
	var mistakes []error
	if _, err := client.ParseDomains(c.ClientDomains); err != nil {
		mistakes = append(mistakes, fmt.Errorf("ALMONER_CLIENT_DOMAINS: %w", err))
	}
	if _, err := c.documentCA(); err != nil {
		mistakes = append(mistakes, fmt.Errorf("ALMONER_CLIENT_DOCUMENT_CA %w", err))
	}
	// With this setting, a URL from a request is read from the local machine. A server that others can reach must not
	// do that.
	if c.ClientDocumentCA != "" && !(onThisMachine(c.BaseURL) && onThisMachine(c.AppURL)) {
		mistakes = append(
			mistakes,
			errors.New("ALMONER_CLIENT_DOCUMENT_CA is for development: ALMONER_BASE_URL and ALMONER_APP_URL must be "+
				"addresses of this machine"),
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
