package gate

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/apierr"
)

// Timing and limits of the fetches.
const (
	keepFor       = 24 * time.Hour   // keys not confirmed for longer are not used
	refreshEvery  = 5 * time.Minute  // so that new keys are known before they sign, and removed ones are dropped
	unknownEvery  = 30 * time.Second // at most one fetch for tokens of unknown keys,
	unknownBurst  = 2                // after the first two
	retryEvery    = time.Second      // while there are no keys
	fetchTimeout  = 2 * time.Second
	maxJWKSLength = 64 << 10
)

// Keys verify access tokens with the authorization server's public keys. They are safe for concurrent use.
//
// The keys come from its JWKS. Every failure to get them leads to a refusal:
//
//   - No keys yet: tokens cannot be verified, and the response is 503. Personal access tokens need no keys.
//   - The JWKS is not available: the last keys are used for a day.
//   - A token of an unknown key: the keys are fetched again, but rarely, so that forged tokens cannot cause unlimited
//     requests. Keys are published before they sign, so this rarely happens for a valid token.
//
// A valid signature does not mean that the key is still published: an administrator may have removed it since the
// fetch. The standing query contains the token's key identifier, and Postgres refuses removed keys.
type Keys struct {
	url     string
	issuer  string
	client  *http.Client
	log     *slog.Logger
	now     func() time.Time
	flight  singleflight.Group
	unknown *rate.Limiter
	none    *rate.Limiter
	kept    atomic.Pointer[keySet]
}

// keySet is the result of one fetch.
type keySet struct {
	*accesstoken.Keys
	fetched time.Time
}

// NewKeys returns the keys of issuer at the URL of its JWKS, before the first fetch. now is the clock.
func NewKeys(url, issuer string, log *slog.Logger, now func() time.Time) *Keys {
	return &Keys{
		url:    url,
		issuer: issuer,
		log:    log,
		now:    now,
		client: &http.Client{Timeout: fetchTimeout, CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("the JWKS URL redirects")
		}},
		unknown: rate.NewLimiter(rate.Every(unknownEvery), unknownBurst),
		none:    rate.NewLimiter(rate.Every(retryEvery), 1),
	}
}

// Run refreshes the keys until ctx ends.
func (k *Keys) Run(ctx context.Context) {
	retry := retryEvery
	for {
		wait := refreshEvery
		if err := k.fetch(ctx, nil); err != nil {
			k.log.WarnContext(ctx, "signing keys not fetched", "url", k.url, "cause", err)
			if k.current() == nil {
				wait, retry = retry, min(2*retry, unknownEvery)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// Ready returns nil once keys have been fetched. Until then it fetches them, as Verify would.
func (k *Keys) Ready(ctx context.Context) error {
	if k.kept.Load() != nil {
		return nil
	}
	fetched := make(chan error, 1)
	go func() { fetched <- k.fetch(ctx, k.none) }()
	var cause error
	select {
	case cause = <-fetched:
	case <-ctx.Done():
		cause = ctx.Err()
	}
	if k.kept.Load() != nil {
		return nil
	}
	return &apierr.Error{
		Kind:    apierr.Unavailable,
		Cause:   cause,
		Message: "This process has not loaded the access token keys yet.",
	}
}

// Verify returns the claims of a token, one of accesstoken's errors, or an *apierr.Error of kind Unavailable if there
// are no keys. A malformed token is refused without a fetch.
func (k *Keys) Verify(ctx context.Context, text string) (accesstoken.Claims, error) {
	claims, err := k.verify(text)
	if !errors.Is(err, accesstoken.ErrUnknownKey) {
		return claims, err
	}
	allowance := k.unknown
	if k.current() == nil {
		allowance = k.none
	}
	fetchErr := k.fetch(ctx, allowance)
	if k.current() == nil {
		return accesstoken.Claims{}, &apierr.Error{Kind: apierr.Unavailable, Cause: fetchErr,
			Message: "Access tokens cannot be checked at the moment. Try again in a few seconds."}
	}
	return k.verify(text)
}

// verify checks a token with the current keys.
func (k *Keys) verify(text string) (accesstoken.Claims, error) {
	now, kept := k.now(), k.current()
	if kept == nil { // ErrUnknownKey for every well-formed token
		return accesstoken.Verify(text, jose.JSONWebKeySet{}, k.issuer, now)
	}
	return kept.Verify(text, k.issuer, now)
}

// current returns the keys if they are recent enough to use, or nil.
func (k *Keys) current() *keySet {
	kept := k.kept.Load()
	if kept == nil || k.now().Sub(kept.fetched) > keepFor {
		return nil
	}
	return kept
}

var errFetchedRecently = errors.New("the JWKS was fetched a moment ago")

// fetch replaces the keys if allowance has a token left; a nil allowance always permits. Concurrent callers wait for
// the same fetch and use no token. The fetch outlives the request that started it, because others wait too.
func (k *Keys) fetch(ctx context.Context, allowance *rate.Limiter) error {
	_, err, _ := k.flight.Do("", func() (any, error) {
		if allowance != nil && !allowance.AllowN(k.now(), 1) {
			return nil, errFetchedRecently
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
		defer cancel()
		set, err := k.download(ctx)
		if err != nil {
			return nil, err
		}
		k.kept.Store(&keySet{accesstoken.NewKeys(set), k.now()})
		return nil, nil
	})
	return err
}

func (k *Keys) download(ctx context.Context) (set jose.JSONWebKeySet, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return set, fmt.Errorf("fetch the JWKS: %w", err)
	}
	response, err := k.client.Do(request)
	if err != nil {
		return set, fmt.Errorf("fetch the JWKS: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return set, fmt.Errorf("fetch the JWKS: status %d", response.StatusCode)
	}
	content, err := io.ReadAll(io.LimitReader(response.Body, maxJWKSLength+1))
	if err != nil {
		return set, fmt.Errorf("read the JWKS: %w", err)
	}
	if len(content) > maxJWKSLength {
		return set, errors.New("the JWKS is too large")
	}
	return readSet(content)
}

// readSet selects the public keys that could have signed an access token, and ignores others (RFC 7517, section 5). A
// document without any is an error: accepting it would refuse every token.
func readSet(content []byte) (set jose.JSONWebKeySet, err error) {
	var document struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(content, &document); err != nil {
		return set, errors.New("malformed JWKS")
	}
	for _, raw := range document.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) != nil {
			continue
		}
		public, isEC := key.Key.(*ecdsa.PublicKey)
		if !isEC || public.Curve != elliptic.P256() || key.KeyID == "" || (key.Use != "" && key.Use != "sig") {
			continue
		}
		if len(set.Key(key.KeyID)) > 0 {
			return set, errors.New("two keys in the JWKS have one kid")
		}
		set.Keys = append(set.Keys, key)
	}
	if len(set.Keys) == 0 {
		return set, errors.New("the JWKS has no key for ES256")
	}
	return set, nil
}
