package doctor_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/doctor"
)

func signedIn(r request) bool {
	_, err := r.Cookie("session")
	return err == nil
}

// choosing adds a page that offers workspaces before the consent page.
func choosing() breakage {
	return at("/oauth/authorize", func(_ *sound, r request, a answer) {
		if signedIn(r) && r.Method == http.MethodGet && r.URL.Query().Get("workspace") == "" {
			replace(a, 200, "text/html",
				`<h1>Which workspace?</h1><form method="get" action="/oauth/authorize">`+hidden(r.URL.Query())+
					`<label><input type="radio" name="workspace" value="w2">Harbour Kitchen Garden
					<i>of a Trust</i></label>
				<label><input type="radio" name="workspace" value="w1">Harbour Kitchen <i>of a Trust</i></label>
				<label><input type="radio" name="workspace" value="w3">Other</label>
				<button name="decision" value="deny">Deny</button>
				<button name="decision" value="choose">Go on</button></form>`)
		}
		if signedIn(r) && r.Method == http.MethodGet &&
			(r.URL.Query().Get("decision") == "deny" || r.URL.Query().Get("workspace") == "w2") {
			replace(a, 403, "text/html", "<h1>Not what the person wanted</h1>")
		}
	})
}

func hidden(query url.Values) string {
	var out strings.Builder
	for name, values := range query {
		out.WriteString(`<input type="hidden" name="` + name + `" value="` + values[0] + `">`)
	}
	return out.String()
}

// pasted returns options of a user who pastes a line.
func pasted(line string) func(*sound, *doctor.Options) {
	return func(_ *sound, o *doctor.Options) {
		o.Email, o.Password, o.Pasted = "", "", strings.NewReader(line)
	}
}

func inResult(name string, to any) breakage {
	return func(_ *sound, _ request, a answer) {
		edit(a, func(values map[string]any) {
			if result, ok := values["result"].(map[string]any); ok {
				result[name] = to
			}
		})
	}
}

func endsTheFormer(s *sound, _ request, a answer) {
	if a.Code == 200 {
		for token := range s.live {
			if token != s.newest("access") {
				delete(s.live, token)
			}
		}
	}
}

// forgives keeps the grant active after a replay.
func forgives(s *sound, _ request, _ answer) {
	s.ended = false
	leavesAccess(s, nil, nil)
}

func leavesAccess(s *sound, _ request, _ answer) { s.live[s.newest("access")] = true }

func (s *sound) newest(kind string) string {
	for _, secret := range slices.Backward(s.secrets) {
		if strings.HasPrefix(secret, kind) {
			return secret
		}
	}
	return ""
}

// newSoundAt serves the API of a sound server at another address. Its documents name pages of the first
// server.
func newSoundAt(s *sound) string {
	to, _ := url.Parse(s.URL)
	here := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) }})
	s.Config.RegisterOnShutdown(here.Close)
	return here.URL
}

// Each symptom leads to its diagnosis, with effect and remedy.
func TestRun_DiagnosesEachSymptom(t *testing.T) {
	t.Parallel()
	for _, one := range slices.Concat(discoverySymptoms(), consentSymptoms(), useSymptoms()) {
		t.Run(one.code, func(t *testing.T) {
			t.Parallel()
			s := newSound(t, one.broken)
			o := s.unattended()
			for _, change := range one.with {
				change(s, &o)
			}
			report := run(t, o)
			f, ok := found(report, one.code)
			if !ok {
				t.Fatalf("not found; findings: %s", codes(report))
			}
			if f.Symptom == "" || (f.Verdict != doctor.OK) != (f.Effect != "" && f.Remedy != "") ||
				strings.Contains(f.Symptom+f.Effect+f.Remedy, "{client}") {
				t.Errorf("incomplete diagnosis: %+v", f)
			}
			if want := report.Count(doctor.Fail) > 0; (report.Verdict == doctor.Fail) != want {
				t.Errorf("the verdict is %s: %s", report.Verdict, codes(report))
			}
		})
	}
}

// A symptom is one fault and the expected diagnosis.
type symptom struct {
	code   string
	broken breakage
	with   []func(s *sound, o *doctor.Options)
}

func of(code string, broken breakage, with ...func(*sound, *doctor.Options)) symptom {
	return symptom{code, broken, with}
}

func as(name string) func(*sound, *doctor.Options) {
	return func(_ *sound, o *doctor.Options) { o.As = name }
}

// unknown sets options without a client_id and a password.
func unknown(name string) func(*sound, *doctor.Options) {
	return func(_ *sound, o *doctor.Options) { *o = doctor.Options{URL: o.URL, As: name} }
}

// in sets the workspace that the user wants.
func in(workspace string) func(*sound, *doctor.Options) {
	return func(_ *sound, o *doctor.Options) { o.Workspace = workspace }
}

func status(code int) breakage { return func(_ *sound, _ request, a answer) { a.Code = code } }

func unchallenged(code int) breakage {
	return func(_ *sound, _ request, a answer) {
		a.Header().Del("WWW-Authenticate")
		a.Code = code
	}
}

func body(code int, kind, text string) breakage {
	return func(_ *sound, _ request, a answer) { replace(a, code, kind, text) }
}

func header(name, value string) breakage {
	return func(_ *sound, _ request, a answer) {
		if value == "" {
			a.Header().Del(name)
		} else {
			a.Header().Set(name, value)
		}
	}
}

func location(code int, to string) breakage {
	return func(_ *sound, _ request, a answer) {
		replace(a, code, "text/plain", "")
		a.Header().Set("Location", to)
	}
}

// set changes one member of a JSON response; nil removes it.
func set(name string, to any) breakage {
	return func(_ *sound, _ request, a answer) {
		edit(a, func(values map[string]any) {
			if values[name] = to; to == nil {
				delete(values, name)
			}
		})
	}
}

// when applies the fault only to matching requests.
func when(meant func(r request) bool, broken breakage) breakage {
	return func(s *sound, r request, a answer) {
		if meant(r) {
			broken(s, r, a)
		}
	}
}

// ifRepeated breaks the response to a repeated request.
func ifRepeated(broken breakage) breakage {
	return func(s *sound, r request, a answer) {
		if a.Header().Get("Idempotency-Replayed") != "" {
			broken(s, r, a)
		}
	}
}

func noToken(r request) bool   { return r.Header.Get("Authorization") == "" }
func withToken(r request) bool { return strings.Contains(r.Header.Get("Authorization"), "access-") }
func junk(r request) bool      { return strings.Contains(r.Header.Get("Authorization"), "never-issued") }
func posted(r request) bool    { return r.Method == http.MethodPost }
func fresh(r request) bool     { return r.PostForm.Get("grant_type") == "refresh_token" }
func real(r request) bool      { return strings.Contains(r.PostForm.Encode(), "-0123456789") }

const (
	resourceDoc = "/.well-known/oauth-protected-resource/mcp"
	rootDoc     = "/.well-known/oauth-protected-resource"
	serverDoc   = "/.well-known/oauth-authorization-server"
	openIDDoc   = "/.well-known/openid-configuration"
)

// everywhere changes both documents of the authorization server, and the alias.
func everywhere(broken breakage) breakage {
	return func(s *sound, r request, a answer) {
		if strings.HasPrefix(r.URL.Path, serverDoc) || r.URL.Path == openIDDoc {
			broken(s, r, a)
		}
	}
}

// registers names an endpoint at which clients register.
func registers(s *sound, r request, a answer) {
	everywhere(set("registration_endpoint", s.URL+"/register"))(s, r, a)
}

// unknownClient refuses the client at the token endpoint.
func unknownClient(s *sound, r request, a answer) {
	at("/oauth/token", refuses(400, "invalid_client"))(s, r, a)
}

// both has two faults.
func both(one, other breakage) breakage {
	return func(s *sound, r request, a answer) {
		one(s, r, a)
		other(s, r, a)
	}
}

func resources(broken breakage) breakage {
	return func(s *sound, r request, a answer) {
		if strings.HasPrefix(r.URL.Path, rootDoc) {
			broken(s, r, a)
		}
	}
}

func challenge(text string) breakage {
	return at("/mcp", when(noToken, header("WWW-Authenticate", text)))
}

// inCallback replaces a part of the callback's address.
func inCallback(old, to string) breakage {
	return at("/oauth/authorize", when(posted, func(_ *sound, _ request, a answer) {
		a.Header().Set("Location", strings.Replace(a.Header().Get("Location"), old, to, 1))
	}))
}

// afterCallback adds parameters at the end of the callback's address.
func afterCallback(more string) breakage {
	return at("/oauth/authorize", when(posted, func(_ *sound, _ request, a answer) {
		a.Header().Set("Location", a.Header().Get("Location")+more)
	}))
}

// The faults of the requests that an exchange, a refresh, a call with a token or with another one, and a consent are.
func exchange(broken breakage) breakage   { return at("/oauth/token", when(real, broken)) }
func refreshed(broken breakage) breakage  { return at("/oauth/token", when(fresh, broken)) }
func calls(broken breakage) breakage      { return at("/mcp", when(withToken, broken)) }
func wrongToken(broken breakage) breakage { return at("/mcp", when(junk, broken)) }
func consent(broken breakage) breakage    { return at("/oauth/authorize", when(signedIn, broken)) }

// answers answers with a page.
func answers(code int, text string) breakage { return body(code, "text/html", text) }

// refuses answers with an error of OAuth.
func refuses(code int, name string) breakage {
	return body(code, "application/json", `{"error":"`+name+`"}`)
}
