// Package oidc answers: who does the deployment's OpenID Connect provider say is at this browser?
//
// It is the only importer of go-oidc and oauth2. There is one provider, named by the configuration: no address of it
// ever comes from a caller. Authorization code flow with PKCE, state and nonce (OpenID Connect Core 1.0, section 3.1;
// RFC 9700, section 2.1).
//
//	U1 An identity is believed when its ID token is signed by a key of the provider, by it, for us, for this attempt (nonce), and
//	   has not expired.
//	U2 An attempt that asked for a new proof is believed when the person gave it during the attempt (auth_time). Any other attempt
//	   proves who is there as of auth_time, and proves nothing recent where the provider does not say it: it may have known the
//	   browser for weeks.
//	U3 The provider hears of us what its protocol needs, and nothing that our own callers sent.
//	U4 A provider that does not answer within Patience is ErrUnreachable, and is asked again at the next attempt.
//
// Who an identity is here, and whether they may come in, is for endpoint/upstream.
package oidc

import (
	"crypto/rand"
	"errors"
	"net/http"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"github.com/almonerhq/almoner/shared/credential"
)

// Errors of a Provider. Their texts hold neither codes nor tokens.
var (
	ErrUnreachable = errors.New("the upstream provider does not answer")
	ErrRefused     = errors.New("the upstream provider's answer is refused")
)

// RequestTimeout is how long one request to the provider may take.
const RequestTimeout = 5 * time.Second

// Settings say who the provider is, and who we are there.
type Settings struct {
	Issuer       string
	ClientID     string
	ClientSecret credential.Secret
	RedirectURL  string
}

// A Provider speaks to the provider. It is safe for concurrent use.
type Provider struct {
	settings Settings
	client   *http.Client
	now      func() time.Time
	lookup   singleflight.Group
	mu       sync.Mutex
	known    *discovered
}

// New makes a Provider. Nothing is asked of it yet: one that is down at our start is no failure of ours.
func New(settings Settings, now func() time.Time) *Provider {
	return &Provider{settings: settings, client: newClient(), now: now}
}

// Issuer is the provider's issuer identifier.
func (p *Provider) Issuer() string { return p.settings.Issuer }

// An Attempt is one time that somebody is sent to the provider. It is kept at the server, and State finds it again.
type Attempt struct {
	State    string
	Nonce    string
	Verifier string // PKCE
	Proof    bool   // the person has to prove anew who they are
	Began    time.Time
}

// NewAttempt makes an attempt; state, nonce and verifier are random and say nothing about each other.
func (p *Provider) NewAttempt(proof bool) Attempt {
	return Attempt{
		State:    rand.Text(),
		Nonce:    rand.Text(),
		Verifier: oauth2.GenerateVerifier(),
		Proof:    proof,
		Began:    p.now(),
	}
}

// An Identity is who the provider says somebody is.
type Identity struct {
	Issuer  string
	Subject string
	Email   string // "" unless the provider says that it has verified it
	// When they last proved it there (auth_time), by our clock at the latest; the zero time where the provider does not
	// say.
	ProvedAt time.Time
}
