// Package keys answers: did authserver sign this access token?
//
// The public keys come from its JWKS, and every failure to get them ends in a refusal, never in trust:
//
//   - No keys yet: tokens cannot be judged, and the answer is 503. Personal access tokens need no keys.
//   - The JWKS does not answer: the keys last seen serve on for a day.
//   - A token of an unknown key: the keys are fetched again, but seldom, so that forged tokens cannot make us knock
//     without end; keys are published before they sign, so an honest token hardly ever comes first.
//
// That a key signed a token does not mean that the key is still published: an administrator may have removed it since
// the fetch. The token's key identifier goes into the question about its standing, and Postgres refuses removed keys.
package keys

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/lestrrat-go/jwx/v2/jwa"
	"github.com/lestrrat-go/jwx/v2/jwk"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/almonerhq/almoner/shared/accesstoken"
	"github.com/almonerhq/almoner/shared/apierr"
)

// How keys are kept.
const (
	keepFor       = 24 * time.Hour   // beyond it, keys that could not be confirmed are not believed
	refreshEvery  = 5 * time.Minute  // so that new keys are known before they sign, and removed ones are forgotten
	unknownEvery  = 30 * time.Second // at most one fetch for tokens of unknown keys,
	unknownBurst  = 2                // after the first two
	retryEvery    = time.Second      // while there are no keys at all
	fetchTimeout  = 2 * time.Second
	maxJWKSLength = 64 << 10
)

// A Source holds the keys of one JWKS. It is safe for concurrent use.
type Source struct {
	url     string
	client  *http.Client
	log     *slog.Logger
	now     func() time.Time
	flight  singleflight.Group
	unknown *rate.Limiter
	none    *rate.Limiter
	kept    atomic.Pointer[keySet]
}

// keySet is what one fetch brought.
type keySet struct {
	*accesstoken.Keys
	fetched time.Time
}

// NewSource makes a source that has no keys yet. now is the clock.
func NewSource(url string, log *slog.Logger, now func() time.Time) *Source {
	return &Source{
		url: url,
		log: log,
		now: now,
		client: &http.Client{Timeout: fetchTimeout, CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("the JWKS address redirects")
		}},
		unknown: rate.NewLimiter(rate.Every(unknownEvery), unknownBurst),
		none:    rate.NewLimiter(rate.Every(retryEvery), 1),
	}
}

// Run keeps the keys fresh until ctx ends.
func (s *Source) Run(ctx context.Context) {
	retry := retryEvery
	for {
		wait := refreshEvery
		if err := s.fetch(ctx, nil); err != nil {
			s.log.WarnContext(ctx, "the signing keys could not be fetched", "url", s.url, "cause", err)
			if s.current() == nil {
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

// Ready says whether there ever were keys. Until there are, it asks for them, as a token would.
func (s *Source) Ready(ctx context.Context) error {
	if s.kept.Load() != nil {
		return nil
	}
	fetched := make(chan error, 1)
	go func() { fetched <- s.fetch(ctx, s.none) }()
	var cause error
	select {
	case cause = <-fetched:
	case <-ctx.Done():
		cause = ctx.Err()
	}
	if s.kept.Load() != nil {
		return nil
	}
	return &apierr.Error{
		Kind:    apierr.Unavailable,
		Cause:   cause,
		Message: "This process has not read the keys of access tokens yet.",
	}
}

// current returns the keys that may be believed, or nil.
func (s *Source) current() *keySet {
	kept := s.kept.Load()
	if kept == nil || s.now().Sub(kept.fetched) > keepFor {
		return nil
	}
	return kept
}

var errAskedJustNow = errors.New("the JWKS was asked for just now")

// fetch replaces the keys, if allowance (nil: always) has a turn left. Callers that come while a fetch is under way
// wait for it and take no turn; it outlives the request that began it, because others wait too.
func (s *Source) fetch(ctx context.Context, allowance *rate.Limiter) error {
	_, err, _ := s.flight.Do("", func() (any, error) {
		if allowance != nil && !allowance.AllowN(s.now(), 1) {
			return nil, errAskedJustNow
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
		defer cancel()
		set, err := s.download(ctx)
		if err != nil {
			return nil, err
		}
		s.kept.Store(&keySet{accesstoken.NewKeys(set), s.now()})
		return nil, nil
	})
	return err
}

func (s *Source) download(ctx context.Context) (jwk.Set, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, fmt.Errorf("ask for the JWKS: %w", err)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask for the JWKS: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the JWKS is answered with status %d", response.StatusCode)
	}
	content, err := io.ReadAll(io.LimitReader(response.Body, maxJWKSLength+1))
	if err != nil {
		return nil, fmt.Errorf("read the JWKS: %w", err)
	}
	if len(content) > maxJWKSLength {
		return nil, errors.New("the JWKS is too long")
	}
	return readSet(content)
}

// readSet keeps the public keys that could have signed a token of ours. A document without any is an error: it would
// otherwise lock everybody out.
func readSet(content []byte) (jwk.Set, error) {
	all, err := jwk.Parse(content)
	if err != nil {
		return nil, errors.New("the JWKS is not one")
	}
	usable := jwk.NewSet()
	for i := range all.Len() {
		key, _ := all.Key(i)
		public, isEC := key.(jwk.ECDSAPublicKey)
		if !isEC || public.Crv() != jwa.P256 || key.KeyID() == "" || (key.KeyUsage() != "" && key.KeyUsage() != "sig") {
			continue
		}
		if err := usable.AddKey(key); err != nil {
			return nil, fmt.Errorf("two keys of the JWKS are one: %w", err)
		}
	}
	if usable.Len() == 0 {
		return nil, errors.New("the JWKS has no key for ES256")
	}
	return usable, nil
}
