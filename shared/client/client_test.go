package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/almonerhq/almoner/shared/client"
)

const secret = "alm_pat_this-must-be-seen-nowhere"

// Bodies of responses with status 503.
const (
	unavailable      = `{"error":{"code":"UNAVAILABLE","message":"Soon."}}`
	notProvisioned   = `{"error":{"code":"TENANT_NOT_PROVISIONED","message":"Ask."}}`
	silentAuthserver = `{"error":"temporarily_unavailable","error_description":"Soon."}`
)

// tokens are the tokens of a client.
var tokens = oauth2.StaticTokenSource(&oauth2.Token{AccessToken: secret})

// against makes a client of a server with the handler serve.
func against(t *testing.T, serve http.HandlerFunc, options ...client.Option) *client.Client {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	c, err := client.New(server.URL+"/", "tenant", tokens, options...)
	must(t, err)
	return c
}

func get(t *testing.T, c *client.Client) *client.Error {
	t.Helper()
	_, err := c.Programmes.Get(t.Context(), "p")
	refusal, ok := errors.AsType[*client.Error](err)
	if !ok {
		t.Fatalf("%v is not an *Error", err)
	}
	if strings.Contains(err.Error(), secret) {
		t.Errorf("credential in %q", err)
	}
	return refusal
}

// A redirect would send the credential to another address (C5).
func TestClient_FollowsNoRedirect(t *testing.T) {
	var followed atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	defer elsewhere.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		c := against(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, status) },
			client.WithHTTPClient(http.DefaultClient))
		if got := get(t, c); got.Status != status {
			t.Errorf("%+v", got)
		}
		if _, err := c.Programmes.Create(t.Context(), client.NewProgramme{Name: "x"}); err == nil {
			t.Error("a redirected write succeeded")
		}
	}
	if followed.Load() != 0 || http.DefaultClient.CheckRedirect != nil {
		t.Errorf("%d requests followed a redirect, or http.DefaultClient was changed", followed.Load())
	}
}

func TestClient_SendsHeaders(t *testing.T) {
	var seen http.Header
	var method, path, body string
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		content, _ := io.ReadAll(r.Body)
		seen, method, path, body = r.Header, r.Method, r.URL.EscapedPath(), string(content)
		w.Header().Set("ETag", `"2"`)
		answer(w, 200, `{"id":"p","startsOn":null,"endsOn":"2026-05-01"}`)
	}, client.WithUserAgent("nightly-report/2"))
	change := client.ProgrammeChange{
		Name:     new("n"),
		StartsOn: new(client.Date("")),
		EndsOn:   new(client.Date("2026-05-01")),
	}
	p, err := c.Programmes.Update(t.Context(), "a/b", change, client.IfMatch(`"1"`), client.IdempotencyKey("mine"))
	if err != nil || p.ETag != `"2"` || p.StartsOn != "" || p.EndsOn != "2026-05-01" {
		t.Errorf("%+v %v", p, err)
	}
	for name, want := range map[string]string{
		"Authorization":   "Bearer " + secret,
		"X-Tenant-Id":     "tenant",
		"If-Match":        `"1"`,
		"Idempotency-Key": "mine",
		"User-Agent":      "nightly-report/2 " + client.DefaultUserAgent,
		"Content-Type":    "application/json",
		"Accept":          "application/json",
	} {
		if seen.Get(name) != want {
			t.Errorf("%s is %q", name, seen.Get(name))
		}
	}
	if method != "PATCH" || path != "/v1/programmes/programmes/a%2Fb" ||
		body != `{"name":"n","startsOn":null,"endsOn":"2026-05-01"}` {
		t.Errorf("%s %s %s", method, path, body)
	}
	if _, err := c.OAuthClients.Get(t.Context(), "c"); err != nil || seen.Get("X-Tenant-Id") != "" ||
		path != "/v1/account/tenants/tenant/oauth-clients/c" {
		t.Errorf("%v: %s %v", err, path, seen)
	}
}

func TestList_FollowsCursorsToTheEnd(t *testing.T) {
	pages := []string{
		`{"data":[{"id":"1"},{"id":"2"}],"meta":{"count":2,"nextCursor":"b"}}`,
		`{"data":[],"meta":{"count":0,"nextCursor":"c"}}`, `{"data":[{"id":"3"}],"meta":{"count":1}}`,
	}
	cursors := map[string]int{"": 0, "b": 1, "c": 2}
	var asked atomic.Int64
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.FormValue("q") != "a&b" || r.FormValue("limit") != "2" {
			t.Errorf("filters are missing: %s", r.URL.RawQuery)
		}
		answer(w, 200, pages[cursors[r.FormValue("cursor")]])
	})
	all := c.Programmes.List(t.Context(), client.ProgrammeFilter{Search: "a&b", PageSize: 2})
	wants := func(records string, fails bool) {
		t.Helper()
		var ids string
		var last error
		for p, err := range all {
			if ids, last = ids+p.ID, err; err != nil && p.ID != "" {
				t.Errorf("%+v with %v", p, err)
			}
		}
		if ids != records || (last != nil) != fails {
			t.Errorf("records %s, then %v, want %s, then an error: %t", ids, last, records, fails)
		}
	}
	wants("123", false)
	wants("123", false) // an iterator can be used again
	asked.Store(0)
	for range all {
		break
	}
	if asked.Load() != 1 {
		t.Errorf("%d pages fetched for one record", asked.Load())
	}
	pages[2] = `{"data":[{"id":"3"}],"meta":{"count":1,"nextCursor":"c"}}` // its own cursor
	wants("12", true)
	pages[1] = `{"error":`
	wants("12", true)
}

func TestNew_RequiresAddressWorkspaceAndTokens(t *testing.T) {
	for _, bad := range []string{
		"", "api.example.org", "ftp://x", "https://", "https://u:p@x", "https://x?y", "https://x#y", "http://x y",
	} {
		if _, err := client.New(bad, "t", tokens); err == nil || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	_, noWorkspace := client.New("https://x", "", tokens)
	_, noTokens := client.New("https://x", "t", nil)
	if noWorkspace == nil || noTokens == nil {
		t.Errorf("accepted without a workspace: %v, without tokens: %v", noWorkspace, noTokens)
	}
}

func TestSecrets_AreNotPrinted(t *testing.T) {
	t.Parallel() // it waits between the tries
	app := client.ConfidentialApp{
		Application: client.Application{BaseURL: "http://127.0.0.1:1", ClientID: "c"},
		Secret:      secret,
	}
	q := app.Ask()
	_, err := app.Finish(t.Context(), q,
		map[string][]string{"state": {q.State}, "iss": {"http://127.0.0.1:1"}, "code": {secret}})
	if err == nil {
		t.Fatal("no error although nothing listens at the address")
	}
	service := client.Service{BaseURL: "http://127.0.0.1:1", ClientID: "c", Secret: secret}
	_, silent := service.Introspect(t.Context(), secret)
	for _, text := range []string{
		err.Error(), silent.Error(), fmt.Sprintf("%v %+v %#v", app, app, app), fmt.Sprintf("%v %+v %#v", q, q, q),
		fmt.Sprintf("%v %+v", service, service), fmt.Sprintf("%+v", client.OAuthClient{ClientSecret: secret}),
	} {
		if strings.Contains(text, secret) || strings.Contains(text, q.Verifier) {
			t.Errorf("secret in %q", text)
		}
	}
}

func TestError_ReadsEachShape(t *testing.T) {
	const json, html, foreign = "application/json", "text/html", "not from Almoner"
	for _, c := range []struct {
		name          string
		status        int
		kind, body    string
		shape         client.Shape
		code, message string
		temporary     bool
	}{
		{"nested", 404, json, `{"error":{"code":"NOT_FOUND","message":"No."}}`,
			client.Nested, "NOT_FOUND", "No.", false},
		{"flat", 400, json, `{"error":"invalid_grant","error_description":"Gone."}`,
			client.Flat, "invalid_grant", "Gone.", false},
		{"flat without words", 404, json, `{"error":"not_found"}`, client.Flat, "not_found", "", false},
		{"gateway", 403, json, `{"message":"Forbidden"}`, client.Gateway, "", "Forbidden", false},
		{"unavailable", 503, json, unavailable, client.Nested, "UNAVAILABLE", "Soon.", true},
		{"flat and unavailable", 503, json, silentAuthserver, client.Flat, "temporarily_unavailable", "Soon.", true},
		{"not provisioned", 503, json, notProvisioned, client.Nested, "TENANT_NOT_PROVISIONED", "Ask.", false},
		{"too many", 429, json, `{"error":{"code":"RATE_LIMITED","message":"Wait."}}`,
			client.Nested, "RATE_LIMITED", "Wait.", true},
		{"a proxy's page", 502, html, `<html><h1>Bad Gateway</h1></html>`, client.Foreign, "", foreign, true},
		{"an empty body", 500, "", ``, client.Foreign, "", foreign, false},
		{"a list", 500, json, `["error"]`, client.Foreign, "", foreign, false},
		{"error of a number", 500, json, `{"error":7}`, client.Foreign, "", foreign, false},
		{"error without a code", 500, json, `{"error":{"message":"x"}}`, client.Foreign, "", foreign, false},
		{"a redirect", 302, html, ``, client.Foreign, "", "redirect", false},
		{"success in HTML", 200, html, `<html>Sign in to the hotel's network</html>`,
			client.Foreign, "", "is not Almoner", false},
		{"success in no JSON", 200, json, `<html>`, client.Foreign, "", "not the expected JSON", false},
		{"endless refusal", 500, "text/plain", strings.Repeat("x", 1<<20), client.Foreign, "", "too long", false},
		{"endless success", 200, json, `{"name":"` + strings.Repeat("x", 17<<20) + `"}`,
			client.Foreign, "", "too long", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := get(t, against(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				w.Header().Set("X-Request-Id", "id-7")
				w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			if got.Status != c.status || got.Shape != c.shape || got.Code != c.code ||
				!strings.Contains(got.Message, c.message) || got.Temporary() != c.temporary || got.RequestID != "id-7" {
				t.Errorf("%+v", got)
			}
			if text := got.Error(); !strings.Contains(text, "GET /v1/programmes/programmes/p") ||
				!strings.Contains(text, "id-7") || strings.Contains(text, "elsewhere") || len(text) > 800 {
				t.Errorf("%s", text)
			}
		})
	}
}

func TestError_ReadsFieldsAndRetryAfter(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"7":                    7 * time.Second,
		"":                     0,
		"soon":                 0,
		"-1":                   0,
		"99999999999999999999": 0,
		time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat): 0,
		time.Now().Add(time.Hour).UTC().Format(http.TimeFormat):  time.Hour,
	} {
		got := get(t, against(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", header)
			answer(w, 400, `{"error":{"code":"VALIDATION_ERROR","message":"No.","fields":{
				"name":"Required.","endsOn":"Must be a date."}}}`)
		}))
		if (got.RetryAfter-want).Abs() > 5*time.Second || got.Fields["name"] != "Required." ||
			!strings.Contains(got.Error(), "No.; endsOn: Must be a date.; name: Required.") {
			t.Errorf("%q: %+v", header, got)
		}
	}
}
