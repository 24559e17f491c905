package doctor_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/doctor"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

const (
	password = "correct horse battery staple"
	callback = "http://127.0.0.1:33420/callback"
	clientID = "11111111-2222-4333-8444-555555555555"
)

type (
	request  = *http.Request
	answer   = *httptest.ResponseRecorder
	breakage = func(s *sound, r request, a answer) // changes a response before it is sent
)

// A sound server behaves correctly and records every secret that it issues. Tests break one aspect of it.
type sound struct {
	*httptest.Server
	broken breakage

	mu      sync.Mutex
	count   int
	code    string
	live    map[string]bool // access tokens
	refresh string
	last    string // the refresh token and Idempotency-Key that got it
	ended   bool
	secrets []string
	seen    []string // requests, method and path
}

func newSound(t *testing.T, broken breakage) *sound {
	t.Helper()
	s := &sound{broken: broken, live: map[string]bool{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen = append(s.seen, r.Method+" "+r.URL.Path)
		_ = r.ParseForm()
		a := httptest.NewRecorder()
		s.answer(a, r)
		if s.broken != nil {
			s.broken(s, r, a)
		}
		for name, values := range a.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(a.Code)
		_, _ = w.Write(a.Body.Bytes())
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *sound) secret(kind string) string {
	s.count++
	value := fmt.Sprintf("%s-%d-0123456789abcdefghijklmnop", kind, s.count)
	s.secrets = append(s.secrets, value)
	return value
}

func (s *sound) answer(a answer, r request) {
	a.Header().Set("Access-Control-Allow-Origin", "*")
	a.Header().Set("Access-Control-Expose-Headers", "WWW-Authenticate")
	switch r.URL.Path {
	case "/mcp":
		s.mcp(a, r)
	case "/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp":
		write(a, 200, map[string]any{
			"resource":              s.URL + "/mcp",
			"authorization_servers": []string{s.URL},
			"scopes_supported":      []string{"read", "write"},
		})
	case "/.well-known/oauth-authorization-server",
		"/.well-known/openid-configuration",
		"/.well-known/oauth-authorization-server/mcp":
		write(a, 200, s.metadata())
	case "/authorize":
		redirect(a, s.URL+"/oauth/authorize?"+r.URL.RawQuery)
	case "/oauth/authorize":
		s.authorize(a, r)
	case "/login":
		s.login(a, r)
	case "/logout":
		redirect(a, "/login")
	case "/token", "/oauth/token":
		s.token(a, r)
	case "/oauth/revoke":
		s.ended, s.live = true, map[string]bool{}
		write(a, 200, map[string]any{})
	default:
		write(a, 404, map[string]any{"error": "not_found"})
	}
}

func (s *sound) metadata() map[string]any {
	return map[string]any{
		"issuer":                                         s.URL,
		"authorization_endpoint":                         s.URL + "/oauth/authorize",
		"token_endpoint":                                 s.URL + "/oauth/token",
		"revocation_endpoint":                            s.URL + "/oauth/revoke",
		"response_types_supported":                       []string{"code"},
		"grant_types_supported":                          []string{"authorization_code", "refresh_token"},
		"code_challenge_methods_supported":               []string{"S256"},
		"token_endpoint_auth_methods_supported":          []string{"none"},
		"scopes_supported":                               []string{"read", "write", "offline_access"},
		"client_id_metadata_document_supported":          true,
		"token_endpoint_idempotency_key_supported":       true,
		"authorization_response_iss_parameter_supported": true,
	}
}

func (s *sound) mcp(a answer, r request) {
	bearer, has := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !s.live[bearer] {
		challenge := `Bearer resource_metadata="` + s.URL +
			`/.well-known/oauth-protected-resource/mcp", scope="read write"`
		if has {
			challenge += `, error="invalid_token"`
		}
		a.Header().Set("WWW-Authenticate", challenge)
		write(a, 401, map[string]any{"error": map[string]any{"code": "UNAUTHENTICATED", "message": "Send a token."}})
		return
	}
	var call struct {
		ID     any    `json:"id"`
		Method string `json:"method"`
	}
	_ = json.NewDecoder(r.Body).Decode(&call)
	var result any
	switch call.Method {
	case "initialize":
		result = map[string]any{
			"protocolVersion": "2025-11-25",
			"serverInfo":      map[string]any{"name": "sound", "version": "1"},
		}
	case "notifications/initialized":
		a.WriteHeader(202)
		return
	case "tools/list":
		result = map[string]any{"tools": []any{map[string]any{
			"name":        "whoami",
			"title":       "Who am I?",
			"inputSchema": map[string]any{"type": "object"},
			"annotations": map[string]any{"readOnlyHint": true},
		}}}
	case "tools/call":
		result = map[string]any{
			"content":           []any{map[string]any{"type": "text", "text": "You are Ada."}},
			"structuredContent": map[string]any{"workspace": map[string]any{"name": "Harbour Kitchen"}},
		}
	}
	write(a, 200, map[string]any{"jsonrpc": "2.0", "id": call.ID, "result": result})
}

func (s *sound) authorize(a answer, r request) {
	if _, err := r.Cookie("session"); err != nil {
		page(a, `<h1>Sign in</h1><form method="post" action="/login"><input type="hidden" name="return" value="`+
			html.EscapeString(r.URL.RequestURI())+`"><input type="email" name="email">`+
			`<input type="password" name="password"><button>Sign in</button></form>`)
		return
	}
	if r.Method == http.MethodGet {
		a.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		page(a, `<h1>App asks for access</h1><form method="post" action="/oauth/authorize">`+
			`<input type="hidden" name="request" value="`+
			html.EscapeString(r.URL.RawQuery)+`"><input type="radio" name="access" value="all" checked>
			<input type="radio" name="access" value="read">
			<button name="decision" value="deny">Deny</button>
			<button name="decision" value="approve">Approve</button></form>
			<form method="post" action="/logout"></form>`)
		return
	}
	request, _ := url.ParseQuery(r.PostForm.Get("request"))
	s.code = s.secret("code")
	redirect(a, request.Get("redirect_uri")+"?"+url.Values{
		"code":  {s.code},
		"state": {request.Get("state")},
		"iss":   {s.URL},
	}.Encode())
}

func (s *sound) login(a answer, r request) {
	if r.PostForm.Get("email") != "ada@example.org" || r.PostForm.Get("password") != password {
		a.WriteHeader(400)
		page(a, `<h1>Sign in</h1><p>Wrong.</p><form method="post" action="/login"><input type="email" name="email">`+
			`<input type="password" name="password"></form>`)
		return
	}
	http.SetCookie(a, &http.Cookie{Name: "session", Value: s.secret("session"), Path: "/"})
	redirect(a, r.PostForm.Get("return"))
}

func (s *sound) token(a answer, r request) {
	form := r.PostForm
	byCode := form.Get("grant_type") == "authorization_code" && s.code != "" && form.Get("code") == s.code &&
		form.Get("code_verifier") != ""
	byRefresh := form.Get("grant_type") == "refresh_token" && form.Get("refresh_token") == s.refresh && !s.ended
	request := form.Get("refresh_token") + " " + r.Header.Get("Idempotency-Key")
	again := r.Header.Get("Idempotency-Key") != "" && request == s.last && !s.ended
	if !byCode && !byRefresh && !again {
		if form.Get("grant_type") == "refresh_token" { // a used one: the grant ends
			s.ended, s.live = true, map[string]bool{}
		}
		write(a, 400, map[string]any{"error": "invalid_grant", "error_description": "That is not good."})
		return
	}
	if again {
		a.Header().Set("Idempotency-Replayed", "true")
	} else {
		s.code, s.refresh, s.last = "", s.secret("refresh"), request
	}
	access := s.secret("access")
	s.live[access] = true
	a.Header().Set("Cache-Control", "no-store")
	write(a, 200, map[string]any{
		"access_token":  access,
		"token_type":    "Bearer",
		"expires_in":    3600,
		"refresh_token": s.refresh,
		"scope":         "read write",
	})
}

func write(a answer, status int, value any) {
	a.Header().Set("Content-Type", "application/json")
	a.WriteHeader(status)
	_ = json.NewEncoder(a).Encode(value)
}

func page(a answer, body string) {
	a.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = a.WriteString("<!doctype html><title>Page</title><body>" + body)
}

func redirect(a answer, location string) {
	a.Header().Set("Location", location)
	a.WriteHeader(http.StatusSeeOther)
}

// at breaks the responses of one path.
func at(path string, broken breakage) breakage {
	return func(s *sound, r request, a answer) {
		if r.URL.Path == path {
			broken(s, r, a)
		}
	}
}

// replace replaces the response.
func replace(a answer, status int, kind, body string) {
	a.Code = status
	a.Header().Set("Content-Type", kind)
	a.Body.Reset()
	a.Body.WriteString(body)
}

// edit changes the JSON object in a response.
func edit(a answer, change func(values map[string]any)) {
	values := map[string]any{}
	if json.Unmarshal(a.Body.Bytes(), &values) != nil {
		return
	}
	change(values)
	a.Body.Reset()
	_ = json.NewEncoder(a.Body).Encode(values)
}

// unattended returns options with which the doctor gives consent itself.
func (s *sound) unattended() doctor.Options {
	return doctor.Options{
		URL:         s.URL + "/mcp",
		As:          "generic",
		ClientID:    clientID,
		RedirectURI: callback,
		Email:       "ada@example.org",
		Password:    credential.Secret(password),
		Replay:      true,
	}
}

func run(t *testing.T, o doctor.Options) *doctor.Report {
	t.Helper()
	report, err := doctor.Run(t.Context(), o)
	testkit.Must(t, err)
	return report
}

// found returns the finding with a code.
func found(r *doctor.Report, code string) (doctor.Finding, bool) {
	for _, f := range r.Findings {
		if f.Code == code {
			return f, true
		}
	}
	return doctor.Finding{}, false
}

// wantFindings requires findings with these codes.
func wantFindings(t *testing.T, what string, r *doctor.Report, wanted ...string) {
	t.Helper()
	for _, code := range wanted {
		if _, ok := found(r, code); !ok {
			t.Errorf("%s: no %s among %s", what, code, codes(r))
		}
	}
}

// wantSound requires that the run reached its end and found nothing wrong.
func wantSound(t *testing.T, r *doctor.Report) {
	t.Helper()
	if r.Verdict != doctor.OK || r.Stopped != "" {
		t.Error(codes(r))
	}
}

func codes(r *doctor.Report) string {
	var all []string
	for _, f := range r.Findings {
		all = append(all, string(f.Verdict)+" "+f.Code)
	}
	return strings.Join(all, ", ") + "; " + r.Stopped
}
