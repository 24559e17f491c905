package e2e

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/oauth2"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Contract, section 4: which requests get a page, which are redirected, and the order of the checks.

// change returns the request with one parameter replaced, or removed if there are no values.
func change(request url.Values, name string, values ...string) url.Values {
	out := url.Values{}
	for key, value := range request {
		out[key] = value
	}
	out[name] = values
	return out
}

// A request whose client or callback is not verified gets a page, before and after login, and never a redirect.
func TestAuthorize_BadClientOrCallbackShowsPage(t *testing.T) {
	t.Parallel()
	p := enter(t)
	app, connector := p.DemoConfidential().Request(), p.DemoConnector().Begin().Query
	callback := app.Get("redirect_uri")
	to := func(uri string) url.Values { return change(app, "redirect_uri", uri) }
	requests := map[string]url.Values{
		"unknown client":          change(app, "client_id", uuid.NewString()),
		"client no identifier":    change(app, "client_id", "nonsense"),
		"client in capitals":      change(app, "client_id", strings.ToUpper(app.Get("client_id"))),
		"client in braces":        change(app, "client_id", "{"+app.Get("client_id")+"}"),
		"client NUL":              change(app, "client_id", "\x00"),
		"a service":               change(app, "client_id", p.Demo.Clients.Service.ClientID),
		"no client":               change(app, "client_id"),
		"empty client":            change(app, "client_id", ""),
		"no callback":             change(app, "redirect_uri"),
		"empty callback":          change(app, "redirect_uri", ""),
		"other callback":          to("https://evil.example/callback"),
		"callback, slash":         to(callback + "/"),
		"callback, query":         to(callback + "?x=1"),
		"callback, fragment":      to(callback + "#x"),
		"callback, loopback port": to(strings.Replace(callback, ":8090", ":8091", 1)),
		"callback, loopback name": to(strings.Replace(callback, "127.0.0.1", "localhost", 1)),
		"callback, capitals":      to(strings.ToUpper(callback)),
		"callback, path up":       to(strings.Replace(callback, "/callback", "/x/../callback", 1)),
		"callback, user":          to(strings.Replace(callback, "127.0.0.1", "127.0.0.1@evil.example", 1)),
		"callback, prefix":        to(strings.TrimSuffix(callback, "k")),
		"connector, port":         change(connector, "redirect_uri", strings.Replace(callback, ":8090", ":8091", 1)),
		"client twice":            change(app, "client_id", app.Get("client_id"), app.Get("client_id")),
		"callback twice":          change(app, "redirect_uri", callback, callback),
		"state twice":             change(app, "state", "a", "b"),
		"scope twice":             change(connector, "scope", harness.ReadProgrammes, harness.ReadProgrammes),
		"resource twice":          change(connector, "resource", connector.Get("resource"), connector.Get("resource")),
		"unknown parameter twice": change(app, "prompt", "login", "consent"),
	}
	stranger, owner := p.Person(t, p.Demo.Users.Owner), p.Person(t, p.Demo.Users.Owner).SignedIn(t)
	for name, request := range requests {
		t.Run(name, func(t *testing.T) {
			stranger.Open(t, p.AuthorizeURL(request)).WantsPage(t, http.StatusBadRequest)
			owner.Open(t, p.AuthorizeURL(request)).WantsPage(t, http.StatusBadRequest)
		})
	}
	for _, malformed := range []string{"", "client_id=%zz", app.Encode() + "&x=%zz"} {
		stranger.Open(t, p.AppURL+"/oauth/authorize?"+malformed).WantsPage(t, http.StatusBadRequest)
	}
}

type mistake struct {
	request url.Values
	codes   []string
}

// connectorMistakes are requests of a known client with its own callback that have one error.
func connectorMistakes(q url.Values, otherResource string) map[string]mistake {
	is := func(request url.Values, codes ...string) mistake { return mistake{request, codes} }
	return map[string]mistake{
		"response_type token":    is(change(q, "response_type", "token"), "unsupported_response_type"),
		"response_type two":      is(change(q, "response_type", "code token"), "unsupported_response_type"),
		"response_type capitals": is(change(q, "response_type", "CODE"), "unsupported_response_type"),
		// "required", and "any response_type but code": the contract allows either error for a missing one.
		"response_type missing": is(change(q, "response_type"), "invalid_request", "unsupported_response_type"),
		"no PKCE at all":        is(change(change(q, "code_challenge"), "code_challenge_method"), "invalid_request"),
		"challenge missing":     is(change(q, "code_challenge"), "invalid_request"),
		"challenge empty":       is(change(q, "code_challenge", ""), "invalid_request"),
		"challenge short":       is(change(q, "code_challenge", "abc"), "invalid_request"),
		"challenge, bad letter": is(change(q, "code_challenge", strings.Repeat("*", 43)), "invalid_request"),
		"method missing":        is(change(q, "code_challenge_method"), "invalid_request"),
		"method plain":          is(change(q, "code_challenge_method", "plain"), "invalid_request"),
		"method small":          is(change(q, "code_challenge_method", "s256"), "invalid_request"),
		"resource other":        is(change(q, "resource", otherResource), "invalid_target"),
		"resource slash":        is(change(q, "resource", q.Get("resource")+"/"), "invalid_target"),
		"resource below":        is(change(q, "resource", q.Get("resource")+"/programmes"), "invalid_target"),
		"resource capitals":     is(change(q, "resource", strings.ToUpper(q.Get("resource"))), "invalid_target"),
		// "required", and RFC 8707 calls a missing resource invalid_target: both are allowed.
		"resource missing":     is(change(q, "resource"), "invalid_request", "invalid_target"),
		"scope unknown":        is(change(q, "scope", "programmes:delete:programmes"), "invalid_scope"),
		"scope one unknown":    is(change(q, "scope", harness.ReadProgrammes+" nonsense"), "invalid_scope"),
		"scope capitals":       is(change(q, "scope", "Programmes:Read:Programmes"), "invalid_scope"),
		"scope wildcard":       is(change(q, "scope", "programmes:*:programmes"), "invalid_scope"),
		"scope, tab":           is(change(q, "scope", harness.ReadProgrammes+"\t"+harness.ReadForms), "invalid_scope"),
		"scope, only surplus":  is(change(q, "scope", harness.ReadForms+" "+harness.WriteForms), "invalid_scope"),
		"scope, API access":    is(change(q, "scope", harness.APIAccess), "invalid_scope"),
		"state missing":        is(change(q, "state"), "invalid_request"),
		"state empty":          is(change(q, "state", ""), "invalid_request"),
		"state over the limit": is(change(q, "state", strings.Repeat("s", 2049)), "invalid_request"),
	}
}

func confidentialMistakes(q url.Values) map[string]mistake {
	pkce := change(q, "code_challenge", oauth2.S256ChallengeFromVerifier(strings.Repeat("v", 43)))
	return map[string]mistake{
		"confidential, response_type token": {
			change(q, "response_type", "token"),
			[]string{"unsupported_response_type"},
		},
		"confidential, state missing": {change(q, "state"), []string{"invalid_request"}},
		"confidential, state empty":   {change(q, "state", ""), []string{"invalid_request"}},
		"confidential, state over the limit": {
			change(q, "state", strings.Repeat("é", 1025)),
			[]string{"invalid_request"},
		},
		"confidential, challenge plain":      {change(pkce, "code_challenge_method", "plain"), []string{"invalid_request"}},
		"confidential, challenge, no method": {pkce, []string{"invalid_request"}},
	}
}

// "then login (RFC 9700 4.11.2: nobody is redirected before)": an invalid request is not an open redirector.
func TestAuthorize_OtherErrorsRedirectToCallback(t *testing.T) {
	t.Parallel()
	p := enter(t)
	owner := p.Person(t, p.Demo.Users.Owner).SignedIn(t)
	mistakes := connectorMistakes(p.DemoConnector().Begin().Query, p.Demo.Clients.MCP.Resource)
	for name, m := range confidentialMistakes(p.DemoConfidential().Request()) {
		mistakes[name] = m
	}
	for name, m := range mistakes {
		t.Run(name, func(t *testing.T) {
			state := m.request.Get("state")
			if len(state) > 2048 {
				state = "" // it is not returned
			}
			stranger := p.Person(t, p.Demo.Users.Owner)
			before := stranger.Open(t, p.AuthorizeURL(m.request))
			if before.Status == http.StatusSeeOther {
				before = stranger.Follow(t, before) // fails unless within the app
			}
			if !before.IsLogin() {
				t.Errorf("before login, want the login page:\n%s", before)
			}
			page := owner.Open(t, p.AuthorizeURL(m.request))
			wantsError(t, page.Callback(t), m.request.Get("redirect_uri"), state, p.BaseURL, m.codes...)
		})
	}
}

// Other parameters are checked before membership and LLM integration, and those before consent.
func TestAuthorize_ChecksParametersBeforeMembership(t *testing.T) {
	p, ws := inWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes)
	stranger := p.Person(t, p.Database.User(t)).SignedIn(t)
	q := connector.Begin().Query
	refused := stranger.Open(t, p.AuthorizeURL(change(q, "scope", "nonsense"))).Callback(t)
	wantsError(t, refused, connector.RedirectURI, q.Get("state"), p.BaseURL, "invalid_scope")
	stranger.Open(t, p.AuthorizeURL(q)).WantsPage(t, http.StatusForbidden)
	p.Database.SetLLM(t, ws.Workspace, false)
	owner := p.Person(t, ws.Owner).SignedIn(t)
	refused = owner.Open(t, p.AuthorizeURL(change(q, "resource", "https://x.example"))).Callback(t)
	wantsError(t, refused, connector.RedirectURI, q.Get("state"), p.BaseURL, "invalid_target")
	owner.Open(t, p.AuthorizeURL(q)).WantsPage(t, http.StatusForbidden)
}
