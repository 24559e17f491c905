package keys

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
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
	"github.com/lestrrat-go/jwx/v2/jwk"

	"github.com/almonerhq/almoner/shared/accesstoken"
	"github.com/almonerhq/almoner/shared/apierr"
)

const issuer = "https://api.almoner.example"

// An authserver publishes keys and can be made to fail. Its clock is the verifier's too.
type authserver struct {
	t       *testing.T
	server  *httptest.Server
	mu      sync.Mutex
	content []byte
	status  int
	asked   atomic.Int64
	clock   atomic.Int64 // seconds
}

func newAuthserver(t *testing.T) (*authserver, *Verifier, *Source) {
	t.Helper()
	a := &authserver{t: t, status: 200}
	a.clock.Store(time.Now().Unix())
	a.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a.asked.Add(1)
		a.mu.Lock()
		defer a.mu.Unlock()
		w.WriteHeader(a.status)
		_, _ = w.Write(a.content)
	}))
	t.Cleanup(a.server.Close)
	source := NewSource(a.server.URL, slog.New(slog.DiscardHandler), a.now)
	return a, NewVerifier(source, issuer), source
}

func (a *authserver) now() time.Time         { return time.Unix(a.clock.Load(), 0) }
func (a *authserver) later(by time.Duration) { a.clock.Add(int64(by / time.Second)) }
func (a *authserver) answer(status int, content string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status, a.content = status, []byte(content)
}

func (a *authserver) publish(keys ...jwk.Key) {
	a.t.Helper()
	set := jwk.NewSet()
	for _, key := range keys {
		public, err := key.PublicKey()
		if err == nil {
			err = set.AddKey(public)
		}
		if err != nil {
			a.t.Fatal(err)
		}
	}
	content, err := json.Marshal(set)
	if err != nil {
		a.t.Fatal(err)
	}
	a.answer(200, string(content))
}

func newKey(t *testing.T, id string) jwk.Key {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return named(t, private, id)
}

func named(t *testing.T, raw any, id string) jwk.Key {
	t.Helper()
	key, err := jwk.FromRaw(raw)
	if err == nil {
		err = key.Set(jwk.KeyIDKey, id)
	}
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// token is good for two days by the authserver's clock.
func (a *authserver) token(key jwk.Key) string {
	a.t.Helper()
	token, err := accesstoken.Sign(key, accesstoken.Claims{
		Issuer: issuer, Subject: uuid.New(), Audience: issuer + "/v1", Expires: a.now().Add(48 * time.Hour), IssuedAt: a.now(),
		ID: uuid.NewString(), ClientID: uuid.NewString(), TenantID: uuid.New(), GrantID: uuid.New(),
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return token.Reveal()
}

func verify(t *testing.T, v *Verifier, token string) error {
	t.Helper()
	_, err := v.Verify(t.Context(), token)
	return err
}

func unavailable(err error) bool {
	e, ok := errors.AsType[*apierr.Error](err)
	return ok && e.Kind == apierr.Unavailable
}

func TestNoKeysYetIsUnavailableAndSoonOver(t *testing.T) {
	a, v, _ := newAuthserver(t)
	key := newKey(t, "1")
	token := a.token(key)
	a.answer(502, "")
	if err := verify(t, v, token); !unavailable(err) {
		t.Errorf("%v", err)
	}
	if err := verify(t, v, "a.b.c"); !errors.Is(err, accesstoken.ErrInvalid) || a.asked.Load() != 1 {
		t.Errorf("a malformed token: %v after %d questions", err, a.asked.Load())
	}
	a.publish(key)
	if err := verify(t, v, token); !unavailable(err) || a.asked.Load() != 1 {
		t.Errorf("asked %d times within a second: %v", a.asked.Load(), err)
	}
	a.later(time.Second)
	if err := verify(t, v, token); err != nil {
		t.Errorf("%v", err)
	}
}

func TestKeysServeForADayWithoutTheAuthserver(t *testing.T) {
	a, v, source := newAuthserver(t)
	key := newKey(t, "1")
	token, fresh := a.token(key), a.token(key)
	a.publish(key)
	if err := verify(t, v, token); err != nil {
		t.Fatal(err)
	}
	a.server.Close()
	a.later(23 * time.Hour)
	if err := source.fetch(t.Context(), nil); err == nil {
		t.Fatal("fetched from a server that is gone")
	}
	for _, one := range []string{token, fresh} {
		if err := verify(t, v, one); err != nil {
			t.Errorf("within a day: %v", err)
		}
	}
	a.later(time.Hour + time.Second)
	for _, one := range []string{token, fresh} {
		if err := verify(t, v, one); !unavailable(err) {
			t.Errorf("after a day: %v", err)
		}
	}
}

func TestARotationIsNoticedAndUnknownKeysAreAskedForSeldom(t *testing.T) {
	a, v, _ := newAuthserver(t)
	old, fresh := newKey(t, "old"), newKey(t, "new")
	a.publish(old)
	if err := verify(t, v, a.token(old)); err != nil {
		t.Fatal(err)
	}
	a.publish(old, fresh)
	if err := verify(t, v, a.token(fresh)); err != nil {
		t.Errorf("the rotation was not noticed: %v", err)
	}
	before := a.asked.Load()
	for range 50 {
		if err := verify(t, v, a.token(newKey(t, uuid.NewString()))); !errors.Is(err, accesstoken.ErrUnknownKey) {
			t.Errorf("%v", err)
		}
	}
	if more := a.asked.Load() - before; more > unknownBurst {
		t.Errorf("50 forged tokens made us ask %d times", more)
	}
	before = a.asked.Load()
	a.later(29 * time.Second)
	_ = verify(t, v, a.token(newKey(t, "x")))
	if a.asked.Load() != before {
		t.Error("asked again within 30 seconds")
	}
	a.later(2 * time.Second)
	_ = verify(t, v, a.token(newKey(t, "x")))
	_ = verify(t, v, a.token(newKey(t, "x")))
	if more := a.asked.Load() - before; more != 1 {
		t.Errorf("asked %d times after 30 seconds", more)
	}
	a.answer(502, "")
	a.later(31 * time.Second)
	if err := verify(t, v, a.token(newKey(t, "x"))); !errors.Is(err, accesstoken.ErrUnknownKey) {
		t.Errorf("an unknown key while the JWKS fails: %v", err)
	}
}

func TestAKeyThatIsTakenBackTakesItsTokensAlong(t *testing.T) {
	a, v, source := newAuthserver(t)
	leaked, fresh := newKey(t, "leaked"), newKey(t, "new")
	a.publish(leaked)
	token := a.token(leaked)
	for range 2 {
		if err := verify(t, v, token); err != nil {
			t.Fatal(err)
		}
	}
	a.publish(fresh)
	if err := source.fetch(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := verify(t, v, token); !errors.Is(err, accesstoken.ErrUnknownKey) {
		t.Errorf("%v", err)
	}
}

func TestARememberedTokenStillExpires(t *testing.T) {
	a, v, source := newAuthserver(t)
	key := newKey(t, "1")
	a.publish(key)
	token := a.token(key)
	a.later(47*time.Hour + 59*time.Minute)
	if err := source.fetch(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := verify(t, v, token); err != nil { // remembered by the keys that are kept
		t.Fatal(err)
	}
	a.later(2 * time.Minute)
	if err := verify(t, v, token); !errors.Is(err, accesstoken.ErrExpired) {
		t.Errorf("%v", err)
	}
}

func TestADocumentWithoutUsableKeysReplacesNothing(t *testing.T) {
	a, v, source := newAuthserver(t)
	key := newKey(t, "1")
	a.publish(key)
	token := a.token(key)
	if err := verify(t, v, token); err != nil {
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
	encode := func(keys ...jwk.Key) string {
		set := jwk.NewSet()
		for _, one := range keys {
			if err := set.AddKey(one); err != nil {
				t.Fatal(err)
			}
		}
		content, err := json.Marshal(set)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	encryption := newKey(t, "enc")
	if err := encryption.Set(jwk.KeyUsageKey, "enc"); err != nil {
		t.Fatal(err)
	}
	publicEncryption, _ := encryption.PublicKey()
	nameless, _ := newKey(t, "x").PublicKey()
	_ = nameless.Remove(jwk.KeyIDKey)
	for name, content := range map[string]string{
		"empty": "", "no JSON": "<html>", "no keys": `{"keys":[]}`, "too long": `{"keys":[]}` + strings.Repeat(" ", maxJWKSLength),
		"RSA": encode(named(t, rsaKey.Public(), "1")), "P-384": encode(named(t, p384.Public(), "1")), "symmetric": encode(named(t, []byte("0123456789abcdef"), "1")),
		"private": encode(newKey(t, "1")), "for encryption": encode(publicEncryption), "without a name": encode(nameless),
	} {
		a.answer(200, content)
		if err := source.fetch(t.Context(), nil); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if err := verify(t, v, token); err != nil {
			t.Errorf("%s: the keys are gone: %v", name, err)
		}
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	a, _, _ := newAuthserver(t)
	a.publish(newKey(t, "1"))
	elsewhere := httptest.NewServer(http.RedirectHandler(a.server.URL, http.StatusFound))
	t.Cleanup(elsewhere.Close)
	source := NewSource(elsewhere.URL, slog.New(slog.DiscardHandler), a.now)
	if err := source.fetch(t.Context(), nil); err == nil || a.asked.Load() != 0 {
		t.Errorf("followed: %v", err)
	}
}

func TestMemoryOfVerifiedTokensIsBounded(t *testing.T) {
	var v verified
	at := time.Unix(0, 0)
	for i := range 3 * generationSize {
		v.add(string(rune(i))+"token", accesstoken.Claims{Expires: at.Add(time.Hour)})
		if i%7 == 0 {
			v.add("in use", accesstoken.Claims{Expires: at.Add(time.Hour)})
		}
	}
	if len(v.recent)+len(v.older) > 2*generationSize {
		t.Errorf("%d remembered", len(v.recent)+len(v.older))
	}
	if _, found := v.find("in use", at); !found {
		t.Error("one in use was forgotten")
	}
	if _, found := v.find("in use", at.Add(time.Hour)); found {
		t.Error("an expired one is believed")
	}
}

func TestManyTokensOfANewKeyWaitForOneFetch(t *testing.T) {
	a, v, _ := newAuthserver(t)
	old, fresh := newKey(t, "old"), newKey(t, "new")
	a.publish(old)
	if err := verify(t, v, a.token(old)); err != nil {
		t.Fatal(err)
	}
	a.publish(old, fresh)
	tokens := make([]string, 40)
	for i := range tokens {
		tokens[i] = a.token(fresh)
	}
	before := a.asked.Load()
	var group sync.WaitGroup
	for _, token := range tokens {
		group.Go(func() {
			if err := verify(t, v, token); err != nil {
				t.Errorf("%v", err)
			}
		})
	}
	group.Wait()
	if more := a.asked.Load() - before; more > unknownBurst {
		t.Errorf("asked %d times", more)
	}
}
