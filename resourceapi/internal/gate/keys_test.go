package gate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/apierr"

	"github.com/almonerhq/almoner/resourceapi/internal/gate/keystest"
)

const issuer = "https://api.almoner.example"

// A clock advances only by later.
type clock struct{ seconds atomic.Int64 }

func (c *clock) now() time.Time         { return time.Unix(c.seconds.Load(), 0) }
func (c *clock) later(by time.Duration) { c.seconds.Add(int64(by / time.Second)) }

// A scene is an authorization server that shares a clock with the keys.
type scene struct {
	*keystest.Authserver
	*clock
	t *testing.T
}

func newScene(t *testing.T) (scene, *Keys) {
	t.Helper()
	s := scene{keystest.NewAuthserver(t), &clock{}, t}
	s.seconds.Store(time.Now().Unix())
	return s, NewKeys(s.URL, issuer, slog.New(slog.DiscardHandler), s.now)
}

// token returns a token that is valid for two days by the clock.
func (s scene) token(key keystest.Key) string {
	s.t.Helper()
	return key.Sign(s.t, accesstoken.Claims{
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
	key := keystest.NewKey(t, "1")
	token := a.token(key)
	a.Answer(502, "")
	if err := verify(t, keys, token); !unavailable(err) {
		t.Errorf("%v", err)
	}
	if err := verify(t, keys, "a.b.c"); !errors.Is(err, accesstoken.ErrInvalid) || a.Requests() != 1 {
		t.Errorf("a malformed token: %v after %d fetches", err, a.Requests())
	}
	a.Publish(key)
	if err := verify(t, keys, token); !unavailable(err) || a.Requests() != 1 {
		t.Errorf("%d fetches within a second: %v", a.Requests(), err)
	}
	a.later(time.Second)
	if err := verify(t, keys, token); err != nil {
		t.Errorf("%v", err)
	}
}

// Each of these 503s has its cause for the log, although the JWKS is fetched at most once a second.
func TestReady_FailsBeforeFirstKeys(t *testing.T) {
	a, keys := newScene(t)
	key := keystest.NewKey(t, "1")
	a.Answer(502, "")
	for range 3 {
		for _, err := range []error{keys.Ready(t.Context()), verify(t, keys, a.token(key))} {
			if e, ok := errors.AsType[*apierr.Error](err); !ok || e.Kind != apierr.Unavailable || e.Cause == nil {
				t.Errorf("%+v", err)
			}
		}
	}
	if a.Requests() != 1 {
		t.Errorf("%d fetches within a second", a.Requests())
	}
	a.Publish(key)
	a.later(time.Second)
	if err := keys.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	a.Answer(502, "")
	a.later(48 * time.Hour)
	if err := keys.Ready(t.Context()); err != nil || a.Requests() != 2 {
		t.Errorf("%v after %d fetches, want ready without another fetch", err, a.Requests())
	}
}

func TestVerify_UsesCachedKeysForOneDay(t *testing.T) {
	a, keys := newScene(t)
	key := keystest.NewKey(t, "1")
	token, fresh := a.token(key), a.token(key)
	a.Publish(key)
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
	a.later(time.Hour + time.Second)
	for _, one := range []string{token, fresh} {
		if err := verify(t, keys, one); !unavailable(err) {
			t.Errorf("after a day: %v", err)
		}
	}
}

func TestVerify_FetchesForUnknownKeysRarely(t *testing.T) {
	a, keys := newScene(t)
	old, fresh := keystest.NewKey(t, "old"), keystest.NewKey(t, "new")
	a.Publish(old)
	if err := verify(t, keys, a.token(old)); err != nil {
		t.Fatal(err)
	}
	a.Publish(old, fresh)
	if err := verify(t, keys, a.token(fresh)); err != nil {
		t.Errorf("the rotation was not noticed: %v", err)
	}
	before := a.Requests()
	for range 50 {
		if err := verify(t, keys, a.token(keystest.NewKey(t, uuid.NewString()))); !errors.Is(
			err,
			accesstoken.ErrUnknownKey,
		) {
			t.Errorf("%v", err)
		}
	}
	if more := a.Requests() - before; more > unknownBurst {
		t.Errorf("50 forged tokens caused %d fetches", more)
	}
	before = a.Requests()
	a.later(29 * time.Second)
	_ = verify(t, keys, a.token(keystest.NewKey(t, "x")))
	if a.Requests() != before {
		t.Error("fetched again within 30 seconds")
	}
	a.later(2 * time.Second)
	_ = verify(t, keys, a.token(keystest.NewKey(t, "x")))
	_ = verify(t, keys, a.token(keystest.NewKey(t, "x")))
	if more := a.Requests() - before; more != 1 {
		t.Errorf("%d fetches after 30 seconds, want 1", more)
	}
	a.Answer(502, "")
	a.later(31 * time.Second)
	if err := verify(t, keys, a.token(keystest.NewKey(t, "x"))); !errors.Is(err, accesstoken.ErrUnknownKey) {
		t.Errorf("an unknown key while the JWKS fails: %v", err)
	}
}

func TestVerify_RefusesTokensOfRemovedKey(t *testing.T) {
	a, keys := newScene(t)
	leaked, fresh := keystest.NewKey(t, "leaked"), keystest.NewKey(t, "new")
	a.Publish(leaked)
	token := a.token(leaked)
	for range 2 {
		if err := verify(t, keys, token); err != nil {
			t.Fatal(err)
		}
	}
	a.Publish(fresh)
	if err := keys.fetch(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := verify(t, keys, token); !errors.Is(err, accesstoken.ErrUnknownKey) {
		t.Errorf("%v", err)
	}
}

func TestVerify_CachedTokenStillExpires(t *testing.T) {
	a, keys := newScene(t)
	key := keystest.NewKey(t, "1")
	a.Publish(key)
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

func TestFetch_DocumentWithoutUsableKeysIsIgnored(t *testing.T) {
	a, keys := newScene(t)
	key := keystest.NewKey(t, "1")
	a.Publish(key)
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
	encryption := keystest.NewKey(t, "enc").Public()
	encryption.Use = "enc"
	nameless := keystest.NewKey(t, "").Public()
	for name, content := range map[string]string{
		"empty":          "",
		"no JSON":        "<html>",
		"no keys":        `{"keys":[]}`,
		"too long":       `{"keys":[]}` + strings.Repeat(" ", maxJWKSLength),
		"RSA":            keystest.JWKS(t, keystest.Named(rsaKey.Public(), "1")),
		"P-384":          keystest.JWKS(t, keystest.Named(p384.Public(), "1")),
		"symmetric":      keystest.JWKS(t, keystest.Named([]byte("0123456789abcdef"), "1")),
		"private":        keystest.JWKS(t, keystest.NewKey(t, "1")),
		"two of one kid": keystest.JWKS(t, keystest.NewKey(t, "1").Public(), keystest.NewKey(t, "1").Public()),
		"for encryption": keystest.JWKS(t, encryption),
		"without a name": keystest.JWKS(t, nameless),
	} {
		a.Answer(200, content)
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
	a.Publish(keystest.NewKey(t, "1"))
	elsewhere := httptest.NewServer(http.RedirectHandler(a.URL, http.StatusFound))
	t.Cleanup(elsewhere.Close)
	keys := NewKeys(elsewhere.URL, issuer, slog.New(slog.DiscardHandler), a.now)
	if err := keys.fetch(t.Context(), nil); err == nil || a.Requests() != 0 {
		t.Errorf("followed: %v", err)
	}
}

func TestVerify_ConcurrentTokensShareOneFetch(t *testing.T) {
	a, keys := newScene(t)
	old, fresh := keystest.NewKey(t, "old"), keystest.NewKey(t, "new")
	a.Publish(old)
	if err := verify(t, keys, a.token(old)); err != nil {
		t.Fatal(err)
	}
	a.Publish(old, fresh)
	tokens := make([]string, 40)
	for i := range tokens {
		tokens[i] = a.token(fresh)
	}
	before := a.Requests()
	var group sync.WaitGroup
	for _, token := range tokens {
		group.Go(func() {
			if err := verify(t, keys, token); err != nil {
				t.Errorf("%v", err)
			}
		})
	}
	group.Wait()
	if more := a.Requests() - before; more > unknownBurst {
		t.Errorf("%d fetches", more)
	}
}
