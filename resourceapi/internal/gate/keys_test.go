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
	"github.com/almonerhq/almoner/shared/devkit/testkit"
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
	t    *testing.T
	keys *Keys
}

func newScene(t *testing.T) scene {
	t.Helper()
	s := scene{authserver: newAuthserver(t), clock: &clock{}, t: t}
	s.seconds.Store(time.Now().Unix())
	s.keys = NewKeys(s.URL, issuer, slog.New(slog.DiscardHandler), s.now)
	return s
}

// rotated is a scene in which the key that is in use has just got a successor.
func rotated(t *testing.T) (a scene, next signingKey) {
	t.Helper()
	a = newScene(t)
	old, next := newKey(t, "old"), newKey(t, "new")
	a.publish(old)
	a.verify("the first key", a.token(old), nil)
	a.publish(old, next)
	return a, next
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

// errUnavailable stands for a refusal with status 503 and its cause for the log.
var errUnavailable = errors.New("unavailable")

// verify checks whether a token is accepted, or which error it gets.
func (s scene) verify(what, token string, want error) {
	s.t.Helper()
	_, err := s.keys.Verify(s.t.Context(), token)
	refusal, is := errors.AsType[*apierr.Error](err)
	if is && refusal.Kind == apierr.Unavailable && refusal.Cause != nil {
		err = errUnavailable
	}
	if !errors.Is(err, want) {
		s.t.Errorf("%s: %+v, want %v", what, err, want)
	}
}

// A 503 for want of keys has its cause for the log, although the JWKS is fetched at most once a second.
func TestVerify_WithoutKeysIsUnavailableUntilFetched(t *testing.T) {
	a, key := newScene(t), newKey(t, "1")
	token := a.token(key)
	a.answer(502, "")
	for range 3 {
		a.verify("without keys", token, errUnavailable)
		if err := apierr.Of(a.keys.Ready(t.Context())); err.Kind != apierr.Unavailable || err.Cause == nil {
			t.Errorf("ready without keys: %+v", err)
		}
	}
	a.verify("a malformed token", "a.b.c", accesstoken.ErrInvalid)
	a.publish(key)
	a.verify("within a second", token, errUnavailable)
	if a.requests() != 1 {
		t.Errorf("%d fetches within a second", a.requests())
	}
	a.later(time.Second)
	a.verify("after a second", token, nil)
}

func TestReady_FailsBeforeFirstKeys(t *testing.T) {
	a := newScene(t)
	a.answer(502, "")
	if a.keys.Ready(t.Context()) == nil {
		t.Error("ready without keys")
	}
	a.publish(newKey(t, "1"))
	a.later(time.Second)
	testkit.Must(t, a.keys.Ready(t.Context()))
	a.answer(502, "")
	a.later(48 * time.Hour)
	if err := a.keys.Ready(t.Context()); err != nil || a.requests() != 2 {
		t.Errorf("%v after %d fetches, want ready without another fetch", err, a.requests())
	}
}

func TestVerify_UsesCachedKeysForOneDay(t *testing.T) {
	a, key := newScene(t), newKey(t, "1")
	token, fresh := a.token(key), a.token(key)
	a.publish(key)
	a.verify("at first", token, nil)
	a.Close()
	a.later(23 * time.Hour)
	if err := a.keys.fetch(t.Context(), nil); err == nil {
		t.Fatal("fetched from a closed server")
	}
	a.verify("a token that is known, within a day", token, nil)
	a.verify("a token that is new, within a day", fresh, nil)
	a.later(time.Hour)
	a.verify("at the end of the day", token, nil)
	a.later(time.Second)
	a.verify("a token that is known, after a day", token, errUnavailable)
	a.verify("a token that is new, after a day", fresh, errUnavailable)
}

func TestVerify_FetchesForUnknownKeysRarely(t *testing.T) {
	a, next := rotated(t)
	a.verify("after the rotation", a.token(next), nil)
	before := a.requests()
	forged := func() { a.verify("forged", a.token(newKey(t, uuid.NewString())), accesstoken.ErrUnknownKey) }
	for range 50 {
		forged()
	}
	if more := a.requests() - before; more > unknownBurst {
		t.Errorf("50 forged tokens caused %d fetches", more)
	}
	before = a.requests()
	a.later(29 * time.Second)
	forged()
	if a.requests() != before {
		t.Error("fetched again within 30 seconds")
	}
	a.later(2 * time.Second)
	forged()
	forged()
	if more := a.requests() - before; more != 1 {
		t.Errorf("%d fetches after 30 seconds, want 1", more)
	}
	a.answer(502, "")
	a.later(31 * time.Second)
	forged() // while the JWKS fails
}

func TestVerify_RefusesTokensOfRemovedKey(t *testing.T) {
	a, leaked := newScene(t), newKey(t, "leaked")
	a.publish(leaked)
	token := a.token(leaked)
	a.verify("at first", token, nil)
	a.verify("again", token, nil)
	a.publish(newKey(t, "new"))
	testkit.Must(t, a.keys.fetch(t.Context(), nil))
	a.verify("after the key was removed", token, accesstoken.ErrUnknownKey)
}

func TestVerify_CachedTokenStillExpires(t *testing.T) {
	a, key := newScene(t), newKey(t, "1")
	a.publish(key)
	token := a.token(key)
	a.later(47*time.Hour + 59*time.Minute)
	testkit.Must(t, a.keys.fetch(t.Context(), nil))
	a.verify("before its end", token, nil) // the cached keys remember it
	a.later(2 * time.Minute)
	a.verify("after its end", token, accesstoken.ErrExpired)
}

// padded returns a document of that length.
func padded(document string, length int) string {
	return document + strings.Repeat(" ", length-len(document))
}

// Keys of other kinds, which a later release may publish, do not hide those that sign access tokens.
func TestFetch_TakesUsableKeysOfLongestDocument(t *testing.T) {
	a, key, second, encryption := newScene(t), newKey(t, "1"), newKey(t, "2"), newKey(t, "enc")
	published := []signingKey{encryption.public(), key.public(), second.public()}
	published[0].Use, published[1].Use = "enc", "sig"
	a.answer(200, padded(jwks(t, published...), maxJWKSLength))
	a.verify("the first key for signatures", a.token(key), nil)
	a.verify("the second", a.token(second), nil)
	a.verify("a key for encryption", a.token(encryption), accesstoken.ErrUnknownKey)
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
	a, key := newScene(t), newKey(t, "1")
	a.publish(key)
	token := a.token(key)
	a.verify("at first", token, nil)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	testkit.Must(t, err)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	testkit.Must(t, err)
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
		if err := a.keys.fetch(t.Context(), nil); err == nil {
			t.Errorf("%s: accepted", name)
		}
		a.verify(name, token, nil) // with the former keys
	}
}

func TestFetch_DoesNotFollowRedirects(t *testing.T) {
	a := newScene(t)
	a.publish(newKey(t, "1"))
	elsewhere := httptest.NewServer(http.RedirectHandler(a.URL, http.StatusFound))
	t.Cleanup(elsewhere.Close)
	keys := NewKeys(elsewhere.URL, issuer, slog.New(slog.DiscardHandler), a.now)
	if err := keys.fetch(t.Context(), nil); err == nil || a.requests() != 0 {
		t.Errorf("followed: %v", err)
	}
}

func TestVerify_ConcurrentTokensShareOneFetch(t *testing.T) {
	a, next := rotated(t)
	before := a.requests()
	var group sync.WaitGroup
	for range 40 {
		token := a.token(next)
		group.Go(func() { a.verify("one of many", token, nil) })
	}
	group.Wait()
	if more := a.requests() - before; more > unknownBurst {
		t.Errorf("%d fetches", more)
	}
}
