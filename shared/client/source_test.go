package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/almonerhq/almoner/shared/client"
)

// A tokenEndpoint rotates refresh tokens as Almoner does: r1, r2 and so on, each valid once. It repeats its last answer
// for the same Idempotency-Key.
type tokenEndpoint struct {
	mu     sync.Mutex
	forms  []url.Values
	keys   []string
	next   int
	last   string // Idempotency-Key of the last rotation
	loses  int    // answers to lose
	refuse func() (status int, body string, instead bool)
}

func (e *tokenEndpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = r.ParseForm()
	e.forms = append(e.forms, r.PostForm)
	key := r.Header.Get("Idempotency-Key")
	e.keys = append(e.keys, key)
	if e.refuse != nil {
		if status, body, instead := e.refuse(); instead {
			w.Header().Set("Retry-After", "60") // longer than a source waits
			answer(w, status, body)
			return
		}
	}
	presented := r.PostForm.Get("refresh_token")
	if repeated := presented == fmt.Sprintf("r%d", e.next-1) && key == e.last; !repeated {
		if presented != fmt.Sprintf("r%d", e.next) || key == "" {
			answer(w, 400, `{"error":"invalid_grant","error_description":"Replaced before."}`)
			return
		}
		e.next, e.last = e.next+1, key
	}
	if e.loses > 0 {
		e.loses--
		panic(http.ErrAbortHandler)
	}
	answer(w, 200, fmt.Sprintf(`{"access_token":"a%d","token_type":"Bearer","expires_in":3600,"scope":"s",
		"tenant_id":"t","refresh_token":"r%[1]d","authorization_expires_in":60}`, e.next))
}

func rotating(t *testing.T) (*tokenEndpoint, client.Connector) {
	t.Helper()
	endpoint := &tokenEndpoint{next: 1}
	server := httptest.NewServer(endpoint)
	t.Cleanup(server.Close)
	return endpoint, client.Connector{
		Application: client.Application{BaseURL: server.URL, ClientID: "c"},
		Resource:    server.URL + "/v1",
	}
}

func expired() *oauth2.Token {
	return &oauth2.Token{AccessToken: "a1", RefreshToken: "r1", Expiry: time.Now().Add(-time.Minute)}
}

func TestSource_ConcurrentCallersShareOneRefresh(t *testing.T) {
	endpoint, connector := rotating(t)
	var kept []string
	source := connector.Source(t.Context(), expired(), func(_ context.Context, t *oauth2.Token) error {
		kept = append(kept, t.RefreshToken)
		return nil
	})
	var group sync.WaitGroup
	for range 32 {
		group.Go(func() {
			if token, err := source.Token(); err != nil || token.AccessToken != "a2" ||
				client.Workspace(token) != "t" || client.Scope(token) != "s" ||
				(time.Until(client.GrantEnds(token))-time.Minute).Abs() > 5*time.Second {
				t.Errorf("%v", err)
			}
		})
	}
	group.Wait()
	if len(endpoint.forms) != 1 || len(kept) != 1 || kept[0] != "r2" {
		t.Fatalf("%d refreshes, kept %v", len(endpoint.forms), kept)
	}
	for name, want := range map[string]string{
		"grant_type":    "refresh_token",
		"client_id":     "c",
		"resource":      connector.Resource,
		"refresh_token": "r1",
	} {
		if endpoint.forms[0].Get(name) != want {
			t.Errorf("%s is %q", name, endpoint.forms[0].Get(name))
		}
	}
}

func TestSource_UnstoredTokenIsNotUsed(t *testing.T) {
	endpoint, connector := rotating(t)
	full := errors.New("disk full")
	var kept string
	failing := true
	source := connector.Source(t.Context(), expired(), func(_ context.Context, t *oauth2.Token) error {
		if failing {
			return full
		}
		kept = t.RefreshToken
		return nil
	})
	for range 3 {
		if token, err := source.Token(); !errors.Is(err, full) || token != nil {
			t.Errorf("%v", err)
		}
	}
	failing = false
	if token, err := source.Token(); err != nil || token.AccessToken != "a2" || kept != "r2" ||
		len(endpoint.forms) != 1 {
		t.Errorf("%v, kept %s, %d refreshes", err, kept, len(endpoint.forms))
	}
}

func TestSource_EndedGrantIsNotRefreshedAgain(t *testing.T) {
	endpoint, connector := rotating(t)
	endpoint.next = 7 // r1 was replaced long ago
	source := connector.Source(t.Context(), expired(), nil)
	for range 3 {
		_, err := source.Token()
		refusal, is := errors.AsType[*client.Error](err)
		if !errors.Is(err, client.ErrConsentAgain) || !is || refusal.Temporary() || refusal.Code != "invalid_grant" {
			t.Errorf("%v", err)
		}
	}
	if len(endpoint.forms) != 1 {
		t.Errorf("%d requests, want 1", len(endpoint.forms))
	}
}

func TestSource_OutageDoesNotEndGrant(t *testing.T) {
	endpoint, connector := rotating(t)
	failures := []string{`{"error":"temporarily_unavailable","error_description":"Soon."}`, `<html>`}
	endpoint.refuse = func() (int, string, bool) {
		if len(failures) == 0 {
			return 0, "", false
		}
		body := failures[0]
		failures = failures[1:]
		return 503, body, true
	}
	source := connector.Source(t.Context(), expired(), nil)
	for range 2 {
		_, err := source.Token()
		if refusal, is := errors.AsType[*client.Error](err); !is || !refusal.Temporary() ||
			errors.Is(err, client.ErrConsentAgain) {
			t.Errorf("%v", err)
		}
	}
	if token, err := source.Token(); err != nil || token.AccessToken != "a2" {
		t.Errorf("%v", err)
	}
	if keys := slices.Compact(slices.Clone(endpoint.keys)); len(endpoint.keys) != 3 || len(keys) != 1 {
		t.Errorf("the next calls do not repeat the key: %q", endpoint.keys)
	}
}

// A request whose response was lost is repeated with the same key, immediately and again at the next call.
func TestSource_RepeatsRequestAfterLostResponse(t *testing.T) {
	endpoint, connector := rotating(t)
	endpoint.loses = 2
	source := connector.Source(t.Context(), expired(), nil)
	token, err := source.Token()
	if err != nil || token.RefreshToken != "r2" || len(endpoint.keys) < 3 {
		t.Fatalf("%v, %d requests", err, len(endpoint.keys))
	}
	for _, key := range endpoint.keys {
		if len(key) < 16 || key != endpoint.keys[0] {
			t.Errorf("keys %q", endpoint.keys)
		}
	}
}

// Callers may leave; the refresh continues for all.
func TestSource_RefreshSurvivesCancelledContext(t *testing.T) {
	_, connector := rotating(t)
	ctx, cancel := context.WithCancel(t.Context())
	source := connector.Source(ctx, expired(), nil)
	cancel()
	if token, err := source.Token(); err != nil || token.AccessToken != "a2" {
		t.Errorf("%v", err)
	}
}

func TestFinish_ChecksCallback(t *testing.T) {
	_, connector := rotating(t)
	q := connector.Ask()
	asked, err := url.Parse(q.URL)
	must(t, err)
	for name, want := range map[string]string{
		"response_type":         "code",
		"client_id":             "c",
		"resource":              connector.Resource,
		"state":                 q.State,
		"code_challenge_method": "S256",
		"code_challenge":        oauth2.S256ChallengeFromVerifier(q.Verifier),
	} {
		if asked.Query().Get(name) != want {
			t.Errorf("%s is %q", name, asked.Query().Get(name))
		}
	}
	good := url.Values{"state": {q.State}, "iss": {connector.BaseURL}, "code": {"x"}}
	for name, spoil := range map[string]func(url.Values){
		"another state":  func(v url.Values) { v.Set("state", "x") },
		"no state":       func(v url.Values) { v.Del("state") },
		"another issuer": func(v url.Values) { v.Set("iss", "https://evil.example") },
		"no issuer":      func(v url.Values) { v.Del("iss") },
		"no code":        func(v url.Values) { v.Del("code") },
	} {
		callback := url.Values{}
		for key, values := range good {
			callback[key] = values
		}
		spoil(callback)
		if _, err := connector.Finish(t.Context(), q, callback); err == nil {
			t.Errorf("%s: no error", name)
		} else if _, asked := errors.AsType[*client.Error](err); asked {
			t.Errorf("%s: the code was sent: %v", name, err)
		}
	}
	_, err = connector.Finish(t.Context(), client.Question{},
		url.Values{"state": {""}, "iss": {connector.BaseURL}, "code": {"x"}})
	if _, asked := errors.AsType[*client.Error](err); err == nil || asked {
		t.Errorf("empty state accepted: %v", err)
	}
	denied := url.Values{
		"state":             {q.State},
		"iss":               {connector.BaseURL},
		"error":             {"access_denied"},
		"error_description": {"No."},
	}
	_, err = connector.Finish(t.Context(), q, denied)
	if refusal, is := errors.AsType[*client.Error](err); !is || refusal.Code != "access_denied" ||
		refusal.Error() != "almoner: the consent page: access_denied: No." {
		t.Errorf("%v", err)
	}
}
