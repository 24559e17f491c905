// Package oidc signs users in at the deployment's OpenID Connect provider.
//
// It is the only importer of go-oidc and oauth2. There is one provider, named by the configuration: a caller never
// supplies its URLs. The package uses the authorization code flow with PKCE, state and nonce (OpenID Connect Core 1.0,
// section 3.1; RFC 9700, section 2.1).
//
//	U1 An identity is accepted if its ID token is signed by a key of the provider, issued by the provider,
//	   for this client, for this attempt (nonce), and has not expired.
//	U2 An attempt that requests a new authentication is accepted if the user authenticated during the
//	   attempt (auth_time). Any other attempt authenticates the user as of auth_time, and proves nothing
//	   recent if the provider does not return it: the provider may have known the browser for weeks.
//	U3 The provider receives what its protocol requires, and nothing that our own callers sent.
//	U4 A provider that does not respond within RequestTimeout is ErrUnreachable, and the next attempt calls
//	   it again.
//
// endpoint/signin decides which user an identity belongs to, and whether that user may sign in.
package oidc

import (
	"crypto/rand"
	"errors"
	"net/http"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// Errors of a Provider. Their texts contain neither codes nor tokens.
var (
	ErrUnreachable = errors.New("upstream provider unavailable")
	ErrRefused     = errors.New("upstream response refused")
)

// RequestTimeout limits one request to the provider.
const RequestTimeout = 5 * time.Second

// Settings are the provider's issuer and our registration there.
type Settings struct {
	Issuer       string
	ClientID     string
	ClientSecret credential.Secret
	RedirectURL  string
}

// A Provider is a client of the OpenID Connect provider. It is safe for concurrent use.
type Provider struct {
	settings Settings
	client   *http.Client
	now      func() time.Time
	lookup   singleflight.Group
	mu       sync.Mutex
	known    *discovered
}

// New returns a Provider. It makes no request yet, so a provider that is down does not prevent the start.
func New(settings Settings, now func() time.Time) *Provider {
	return &Provider{settings: settings, client: newClient(), now: now}
}

// Issuer returns the provider's issuer identifier.
func (p *Provider) Issuer() string { return p.settings.Issuer }

// An Attempt is one redirect of a user to the provider. The server stores it, and finds it again by State.
type Attempt struct {
	State    string
	Nonce    string
	Verifier string // PKCE
	Proof    bool   // the user must authenticate again
	Began    time.Time
}

// NewAttempt returns a new attempt. State, nonce and verifier are independent random values.
func (p *Provider) NewAttempt(proof bool) Attempt {
	return Attempt{
		State:    rand.Text(),
		Nonce:    rand.Text(),
		Verifier: oauth2.GenerateVerifier(),
		Proof:    proof,
		Began:    p.now(),
	}
}

// An Identity is the user's identity at the provider.
type Identity struct {
	Issuer  string
	Subject string
	Email   string // "" unless the provider has verified it
	// ProvedAt is when the user last authenticated there (auth_time), not later than our clock; the zero time if the
	// provider does not return it.
	ProvedAt time.Time
}
