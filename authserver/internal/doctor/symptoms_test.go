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
			replace(
				a,
				200,
				"text/html",
				`<h1>Which workspace?</h1><form method="get" action="/oauth/authorize">`+hidden(r.URL.Query())+
					`<label><input type="radio" name="workspace" value="w2">Harbour Kitchen Garden
					<i>of a Trust</i></label>
				<label><input type="radio" name="workspace" value="w1">Harbour Kitchen <i>of a Trust</i></label>
				<label><input type="radio" name="workspace" value="w3">Other</label>
				<button name="decision" value="deny">Deny</button>
				<button name="decision" value="choose">Go on</button></form>`,
			)
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
