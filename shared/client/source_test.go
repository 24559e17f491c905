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
	mu      sync.Mutex
	forms   []url.Values
	keys    []string
	next    int
	last    string   // Idempotency-Key of the last rotation
	loses   int      // answers to lose
	outages []string // bodies of 503s before the first answer
}

func (e *tokenEndpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = r.ParseForm()
	e.forms = append(e.forms, r.PostForm)
	key := r.Header.Get("Idempotency-Key")
	e.keys = append(e.keys, key)
	if len(e.outages) > 0 {
		w.Header().Set("Retry-After", "60") // longer than a source waits
		answer(w, 503, e.outages[0])
		e.outages = e.outages[1:]
		return
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

// wantsNext checks that the source has the token of the first refresh.
func wantsNext(t *testing.T, source oauth2.TokenSource) {
	t.Helper()
	if token, err := source.Token(); err != nil || token.AccessToken != "a2" {
		t.Errorf("%+v, %v, want a2", token, err)
	}
}

// wantsValues checks the values of a form or a query.
func wantsValues(t *testing.T, got url.Values, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got.Get(name) != value {
			t.Errorf("%s is %q, want %q", name, got.Get(name), value)
		}
	}
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
	wantsValues(t, endpoint.forms[0], map[string]string{
		"grant_type":    "refresh_token",
		"client_id":     "c",
		"resource":      connector.Resource,
		"refresh_token": "r1",
	})
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
	endpoint.outages = []string{silentAuthserver, `<html>`}
	source := connector.Source(t.Context(), expired(), nil)
	for range 2 {
		_, err := source.Token()
		if refusal, is := errors.AsType[*client.Error](err); !is || !refusal.Temporary() ||
			errors.Is(err, client.ErrConsentAgain) {
			t.Errorf("%v", err)
		}
	}
	wantsNext(t, source)
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
	wantsNext(t, source)
}

func TestFinish_ChecksCallback(t *testing.T) {
	_, connector := rotating(t)
	q := connector.Ask()
	asked, err := url.Parse(q.URL)
	must(t, err)
	wantsValues(t, asked.Query(), map[string]string{
		"response_type":         "code",
		"client_id":             "c",
		"resource":              connector.Resource,
		"state":                 q.State,
		"code_challenge_method": "S256",
		"code_challenge":        oauth2.S256ChallengeFromVerifier(q.Verifier),
	})
	state, iss, code := []string{q.State}, []string{connector.BaseURL}, []string{"x"}
	for name, c := range map[string]struct {
		question client.Question
		callback url.Values
	}{
		"another state":  {q, url.Values{"state": {"x"}, "iss": iss, "code": code}},
		"no state":       {q, url.Values{"iss": iss, "code": code}},
		"another issuer": {q, url.Values{"state": state, "iss": {"https://evil.example"}, "code": code}},
		"no issuer":      {q, url.Values{"state": state, "code": code}},
		"no code":        {q, url.Values{"state": state, "iss": iss}},
		"empty state":    {client.Question{}, url.Values{"state": {""}, "iss": iss, "code": code}},
	} {
		_, err := connector.Finish(t.Context(), c.question, c.callback)
		if _, asked := errors.AsType[*client.Error](err); err == nil || asked {
			t.Errorf("%s: %v, want an error without a request", name, err)
		}
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
