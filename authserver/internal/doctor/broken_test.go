package doctor_test

import (
	"net/http"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/doctor"
)

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
