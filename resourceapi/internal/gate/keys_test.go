package gate

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/apierr"
)

const issuer = "https://api.almoner.example"

// A clock advances only by later.
type clock struct{ seconds atomic.Int64 }

func (c *clock) now() time.Time         { return time.Unix(c.seconds.Load(), 0) }
func (c *clock) later(by time.Duration) { c.seconds.Add(int64(by / time.Second)) }

// A scene is an authorization server that shares a clock with the keys.
type scene struct {
	*authserver
	*clock
	t *testing.T
}

func newScene(t *testing.T) (scene, *Keys) {
	t.Helper()
	s := scene{newAuthserver(t), &clock{}, t}
	s.seconds.Store(time.Now().Unix())
	return s, NewKeys(s.URL, issuer, slog.New(slog.DiscardHandler), s.now)
}

// token returns a token that is valid for two days by the clock.
func (s scene) token(key signingKey) string {
	s.t.Helper()
	return key.sign(s.t, accesstoken.Claims{
		Issuer:      issuer,
		Subject:     uuid.New(),
		Audience:    issuer + "/v1",
		Expires:     s.now().Add(48 * time.Hour),
		IssuedAt:    s.now(),
		ID:          uuid.NewString(),
		ClientID:    uuid.NewString(),
		WorkspaceID: uuid.New(),
		GrantID:     uuid.New(),
	})
}

func verify(t *testing.T, keys *Keys, token string) error {
	t.Helper()
	_, err := keys.Verify(t.Context(), token)
	return err
}

func unavailable(err error) bool {
	e, ok := errors.AsType[*apierr.Error](err)
	return ok && e.Kind == apierr.Unavailable
}

func TestVerify_WithoutKeysIsUnavailableUntilFetched(t *testing.T) {
	a, keys := newScene(t)
	key := newKey(t, "1")
	token := a.token(key)
	a.answer(502, "")
	if err := verify(t, keys, token); !unavailable(err) {
		t.Errorf("%v", err)
	}
	if err := verify(t, keys, "a.b.c"); !errors.Is(err, accesstoken.ErrInvalid) || a.requests() != 1 {
		t.Errorf("a malformed token: %v after %d fetches", err, a.requests())
	}
	a.publish(key)
	if err := verify(t, keys, token); !unavailable(err) || a.requests() != 1 {
		t.Errorf("%d fetches within a second: %v", a.requests(), err)
	}
	a.later(time.Second)
	if err := verify(t, keys, token); err != nil {
		t.Errorf("%v", err)
	}
}

// Each of these 503s has its cause for the log, although the JWKS is fetched at most once a second.
func TestReady_FailsBeforeFirstKeys(t *testing.T) {
	a, keys := newScene(t)
	key := newKey(t, "1")
	a.answer(502, "")
	for range 3 {
		for _, err := range []error{keys.Ready(t.Context()), verify(t, keys, a.token(key))} {
			if e, ok := errors.AsType[*apierr.Error](err); !ok || e.Kind != apierr.Unavailable || e.Cause == nil {
				t.Errorf("%+v", err)
			}
		}
	}
	if a.requests() != 1 {
		t.Errorf("%d fetches within a second", a.requests())
	}
	a.publish(key)
	a.later(time.Second)
	if err := keys.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	a.answer(502, "")
	a.later(48 * time.Hour)
	if err := keys.Ready(t.Context()); err != nil || a.requests() != 2 {
		t.Errorf("%v after %d fetches, want ready without another fetch", err, a.requests())
	}
}

func TestVerify_UsesCachedKeysForOneDay(t *testing.T) {
	a, keys := newScene(t)
	key := newKey(t, "1")
	token, fresh := a.token(key), a.token(key)
	a.publish(key)
	if err := verify(t, keys, token); err != nil {
		t.Fatal(err)
	}
	a.Close()
	a.later(23 * time.Hour)
	if err := keys.fetch(t.Context(), nil); err == nil {
		t.Fatal("fetched from a closed server")
	}
	for _, one := range []string{token, fresh} {
		if err := verify(t, keys, one); err != nil {
			t.Errorf("within a day: %v", err)
		}
	}
	a.later(time.Hour)
	if err := verify(t, keys, token); err != nil {
		t.Errorf("at the end of the day: %v", err)
	}
	a.later(time.Second)
	for _, one := range []string{token, fresh} {
		if err := verify(t, keys, one); !unavailable(err) {
			t.Errorf("after a day: %v", err)
		}
	}
}

func TestVerify_FetchesForUnknownKeysRarely(t *testing.T) {
	a, keys := newScene(t)
	old, fresh := newKey(t, "old"), newKey(t, "new")
	a.publish(old)
	if err := verify(t, keys, a.token(old)); err != nil {
		t.Fatal(err)
	}
	a.publish(old, fresh)
	if err := verify(t, keys, a.token(fresh)); err != nil {
		t.Errorf("the rotation was not noticed: %v", err)
	}
	before := a.requests()
	for range 50 {
		if err := verify(t, keys, a.token(newKey(t, uuid.NewString()))); !errors.Is(err, accesstoken.ErrUnknownKey) {
			t.Errorf("%v", err)
		}
	}
	if more := a.requests() - before; more > unknownBurst {
		t.Errorf("50 forged tokens caused %d fetches", more)
	}
	before = a.requests()
	a.later(29 * time.Second)
	_ = verify(t, keys, a.token(newKey(t, "x")))
	if a.requests() != before {
		t.Error("fetched again within 30 seconds")
	}
	a.later(2 * time.Second)
	_ = verify(t, keys, a.token(newKey(t, "x")))
	_ = verify(t, keys, a.token(newKey(t, "x")))
	if more := a.requests() - before; more != 1 {
		t.Errorf("%d fetches after 30 seconds, want 1", more)
	}
	a.answer(502, "")
	a.later(31 * time.Second)
	if err := verify(t, keys, a.token(newKey(t, "x"))); !errors.Is(err, accesstoken.ErrUnknownKey) {
		t.Errorf("an unknown key while the JWKS fails: %v", err)
	}
}

func TestVerify_RefusesTokensOfRemovedKey(t *testing.T) {
	a, keys := newScene(t)
	leaked, fresh := newKey(t, "leaked"), newKey(t, "new")
	a.publish(leaked)
	token := a.token(leaked)
	for range 2 {
		if err := verify(t, keys, token); err != nil {
			t.Fatal(err)
		}
	}
	a.publish(fresh)
	if err := keys.fetch(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := verify(t, keys, token); !errors.Is(err, accesstoken.ErrUnknownKey) {
		t.Errorf("%v", err)
	}
}

func TestVerify_CachedTokenStillExpires(t *testing.T) {
	a, keys := newScene(t)
	key := newKey(t, "1")
	a.publish(key)
	token := a.token(key)
	a.later(47*time.Hour + 59*time.Minute)
	if err := keys.fetch(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := verify(t, keys, token); err != nil { // the cached keys remember the token
		t.Fatal(err)
	}
	a.later(2 * time.Minute)
	if err := verify(t, keys, token); !errors.Is(err, accesstoken.ErrExpired) {
		t.Errorf("%v", err)
	}
}

// padded returns a document of that length.
func padded(document string, length int) string {
	return document + strings.Repeat(" ", length-len(document))
}

// Keys of other kinds, which a later release may publish, do not hide those that sign access tokens.
func TestFetch_TakesUsableKeysOfLongestDocument(t *testing.T) {
	a, keys := newScene(t)
	key, second, encryption := newKey(t, "1"), newKey(t, "2"), newKey(t, "enc")
	published := []signingKey{encryption.public(), key.public(), second.public()}
	published[0].Use, published[1].Use = "enc", "sig"
	a.answer(200, padded(jwks(t, published...), maxJWKSLength))
	for _, one := range []signingKey{key, second} {
		if err := verify(t, keys, a.token(one)); err != nil {
			t.Error(err)
		}
	}
	if err := verify(t, keys, a.token(encryption)); !errors.Is(err, accesstoken.ErrUnknownKey) {
		t.Errorf("a key for encryption: %v", err)
	}
}

// The keys are fetched every 5 minutes, and before the first success after 1, 2, 4, 8 and 16 seconds, then every 30.
func TestRun_FetchesOftenUntilThereAreKeys(t *testing.T) {
	key := newKey(t, "1")
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var fetched []int // seconds
		keys := NewKeys("http://authserver/jwks", issuer, slog.New(slog.DiscardHandler), time.Now)
		keys.client.Transport = transport(func() *http.Response {
			fetched = append(fetched, int(time.Since(began)/time.Second))
			w := httptest.NewRecorder()
			if len(fetched) != 8 {
				w.WriteHeader(http.StatusBadGateway)
			}
			_, _ = w.WriteString(jwks(t, key.public()))
			return w.Result()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 802*time.Second)
		defer cancel()
		keys.Run(ctx)
		if want := []int{0, 1, 3, 7, 15, 31, 61, 91, 391, 691}; !slices.Equal(fetched, want) {
			t.Errorf("%v, want %v", fetched, want)
		}
	})
}

// A transport answers requests without a network, so that a test can have its own clock.
type transport func() *http.Response

func (f transport) RoundTrip(*http.Request) (*http.Response, error) { return f(), nil }

func TestFetch_DocumentWithoutUsableKeysIsIgnored(t *testing.T) {
	a, keys := newScene(t)
	key := newKey(t, "1")
	a.publish(key)
	token := a.token(key)
	if err := verify(t, keys, token); err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	encryption := newKey(t, "enc").public()
	encryption.Use = "enc"
	nameless := newKey(t, "").public()
	for name, content := range map[string]string{
		"empty":          "",
		"no JSON":        "<html>",
		"no keys":        `{"keys":[]}`,
		"too long":       padded(jwks(t, key.public()), maxJWKSLength+1),
		"RSA":            jwks(t, named(rsaKey.Public(), "1")),
		"P-384":          jwks(t, named(p384.Public(), "1")),
		"symmetric":      jwks(t, named([]byte("0123456789abcdef"), "1")),
		"private":        jwks(t, newKey(t, "1")),
		"two of one kid": jwks(t, newKey(t, "1").public(), newKey(t, "1").public()),
		"for encryption": jwks(t, encryption),
		"without a name": jwks(t, nameless),
	} {
		a.answer(200, content)
		if err := keys.fetch(t.Context(), nil); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if err := verify(t, keys, token); err != nil {
			t.Errorf("%s: the keys were replaced: %v", name, err)
		}
	}
}

func TestFetch_DoesNotFollowRedirects(t *testing.T) {
	a, _ := newScene(t)
	a.publish(newKey(t, "1"))
	elsewhere := httptest.NewServer(http.RedirectHandler(a.URL, http.StatusFound))
	t.Cleanup(elsewhere.Close)
	keys := NewKeys(elsewhere.URL, issuer, slog.New(slog.DiscardHandler), a.now)
	if err := keys.fetch(t.Context(), nil); err == nil || a.requests() != 0 {
		t.Errorf("followed: %v", err)
	}
}

func TestVerify_ConcurrentTokensShareOneFetch(t *testing.T) {
	a, keys := newScene(t)
	old, fresh := newKey(t, "old"), newKey(t, "new")
	a.publish(old)
	if err := verify(t, keys, a.token(old)); err != nil {
		t.Fatal(err)
	}
	a.publish(old, fresh)
	tokens := make([]string, 40)
	for i := range tokens {
		tokens[i] = a.token(fresh)
	}
	before := a.requests()
	var group sync.WaitGroup
	for _, token := range tokens {
		group.Go(func() {
			if err := verify(t, keys, token); err != nil {
				t.Errorf("%v", err)
			}
		})
	}
	group.Wait()
	if more := a.requests() - before; more > unknownBurst {
		t.Errorf("%d fetches", more)
	}
}
