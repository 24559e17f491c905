package oidc

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// discovered is the provider's metadata (OpenID Connect Discovery 1.0, section 3).
type discovered struct {
	config   oauth2.Config
	verifier *oidc.IDTokenVerifier
	saysIss  bool // the provider adds iss to its responses (RFC 9207)
}

// discover fetches the provider's metadata once for all waiting callers, and caches it. A failure is not cached.
func (p *Provider) discover(ctx context.Context) (*discovered, error) {
	p.mu.Lock()
	known := p.known
	p.mu.Unlock()
	if known != nil {
		return known, nil
	}
	found := p.lookup.DoChan("discovery", func() (any, error) {
		// The first caller may be cancelled; the others still wait.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RequestTimeout)
		defer cancel()
		metadata, err := p.discoverOnce(oidc.ClientContext(ctx, p.client))
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.known = metadata
		return metadata, nil
	})
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, ctx.Err())
	case outcome := <-found:
		if outcome.Err != nil {
			return nil, outcome.Err
		}
		return outcome.Val.(*discovered), nil
	}
}

func (p *Provider) discoverOnce(ctx context.Context) (*discovered, error) {
	provider, err := oidc.NewProvider(ctx, p.settings.Issuer)
	if err != nil {
		return nil, fmt.Errorf("%w: discovery: %w", ErrUnreachable, brief(err))
	}
	var metadata struct {
		Keys    string   `json:"jwks_uri"`
		Methods []string `json:"token_endpoint_auth_methods_supported"`
		SaysIss bool     `json:"authorization_response_iss_parameter_supported"`
		Signing []string `json:"id_token_signing_alg_values_supported"`
	}
	if err := provider.Claims(&metadata); err != nil {
		return nil, fmt.Errorf("%w: discovery: %w", ErrUnreachable, err)
	}
	endpoint := provider.Endpoint()
	for name, address := range map[string]string{
		"authorization": endpoint.AuthURL,
		"token":         endpoint.TokenURL,
		"keys":          metadata.Keys,
	} {
		if !Allowed(address) {
			return nil, fmt.Errorf("%w: discovery: %s is not an https URL", ErrUnreachable, name)
		}
	}
	endpoint.AuthStyle = authStyle(metadata.Methods)
	remote := oidc.NewRemoteKeySet(oidc.ClientContext(context.Background(), p.client), metadata.Keys)
	return &discovered{
		config: oauth2.Config{
			ClientID:     p.settings.ClientID,
			ClientSecret: p.settings.ClientSecret.Reveal(),
			Endpoint:     endpoint,
			RedirectURL:  p.settings.RedirectURL,
			Scopes:       []string{oidc.ScopeOpenID, "email"},
		},
		verifier: oidc.NewVerifier(p.settings.Issuer, keys{remote}, &oidc.Config{
			ClientID: p.settings.ClientID, SupportedSigningAlgs: chosen(metadata.Signing), Now: p.now,
		}),
		saysIss: metadata.SaysIss,
	}, nil
}

// authStyle returns how to authenticate at the token endpoint. Basic is the default if the provider does not say
// (Discovery, section 3). Trying both would spend the code on the first attempt.
func authStyle(methods []string) oauth2.AuthStyle {
	if len(methods) > 0 && !slices.Contains(methods, "client_secret_basic") {
		return oauth2.AuthStyleInParams
	}
	return oauth2.AuthStyleInHeader
}

// Allowed reports whether text is an https URL, or an http URL of this machine.
func Allowed(text string) bool {
	parsed, err := url.Parse(text)
	if err != nil || parsed.Host == "" || parsed.User != nil {
		return false
	}
	host := parsed.Hostname()
	return parsed.Scheme == "https" ||
		(parsed.Scheme == "http" && (host == "localhost" || host == "127.0.0.1" || host == "::1"))
}

// brief removes what the provider wrote from an error before it is logged: it may be a whole page.
func brief(err error) error {
	var mismatch *oidc.IssuerMismatchError
	var network *url.Error
	switch {
	case errors.As(err, &mismatch):
		return errors.New("the issuer in the metadata differs")
	case errors.As(err, &network):
		return network.Err
	}
	return errors.New("malformed metadata")
}
