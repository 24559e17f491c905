package e2e

import (
	"net/http"
	"net/url"
	"slices"
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
	p := inParallel(t)
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

func is(request url.Values, codes ...string) mistake { return mistake{request, codes} }

// connectorMistakes are requests of a known client with its own callback that have one error.
func connectorMistakes(q url.Values, otherResource string) map[string]mistake {
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
		"confidential, response_type token":  is(change(q, "response_type", "token"), "unsupported_response_type"),
		"confidential, state missing":        is(change(q, "state"), "invalid_request"),
		"confidential, state empty":          is(change(q, "state", ""), "invalid_request"),
		"confidential, state over the limit": is(change(q, "state", strings.Repeat("é", 1025)), "invalid_request"),
		"confidential, challenge plain":      is(change(pkce, "code_challenge_method", "plain"), "invalid_request"),
		"confidential, challenge, no method": is(pkce, "invalid_request"),
	}
}

// "then login (RFC 9700 4.11.2: nobody is redirected before)": an invalid request is not an open redirector.
func TestAuthorize_OtherErrorsRedirectToCallback(t *testing.T) {
	p := inParallel(t)
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

// Contract, section 4: valid authorization requests and their results.

func TestAuthorize_IgnoresUnknownParameters(t *testing.T) {
	p := inParallel(t)
	owner := p.Person(t, p.Demo.Users.Owner).SignedIn(t)
	for _, request := range []url.Values{p.DemoConfidential().Request(), p.DemoConnector().Begin().Query} {
		for name, value := range map[string]string{
			"prompt":        "consent",
			"nonce":         "n",
			"audience":      "x",
			"request_id":    "1",
			"Scope":         "nonsense",
			"response_mode": "query",
		} {
			request = change(request, name, value)
		}
		owner.Consent(t, request)
	}
}

// "any length up to 2,048, and comes back byte for byte"
func TestAuthorize_ReturnsStateUnchanged(t *testing.T) {
	p := inParallel(t)
	owner := p.Person(t, p.Demo.Users.Owner).SignedIn(t)
	for name, state := range map[string]string{
		"one character": "x",
		"longest":       strings.Repeat("s", 2048),
		"signs":         ` +&=%2B%25;,/?#"<>'\|^~` + "`{}[]",
		"beyond ASCII":  "café ☕ \u202e",
		"like JSON":     `{"a":"b"}`,
		"line breaks":   "a\r\nLocation: https://evil.example",
		"not UTF-8":     "\xff\xfe",
	} {
		t.Run(name, func(t *testing.T) {
			for _, button := range []string{"approve", "deny"} {
				callback := owner.Consent(t, change(p.DemoConfidential().Request(), "state", state)).Press(t, button).
					Callback(t)
				if got := callback.Values.Get("state"); got != state {
					t.Errorf("%s: the state came back as %q", button, got)
				}
				want := map[string]string{"approve": "code iss state", "deny": "error error_description iss state"}
				if got := strings.Join(callback.Names(), " "); got != want[button] ||
					callback.Values.Get("iss") != p.BaseURL || callback.URI != p.DemoConfidential().RedirectURI {
					t.Errorf("%s: redirected to %s with %s, want %s", button, callback.URI, got, want[button])
				}
			}
		})
	}
}

// Contract, section 4: the content of the consent page, and the effect of its two buttons.

// grantsOf returns the number of grants of an application.
func grantsOf(t *testing.T, p *harness.Product, client string) int {
	t.Helper()
	return p.Database.Count(t, `select count(*) from account.grants where client_id = $1`, client)
}

// A write permission is never granted without its read permission: a request for the write adds the read, and the
// write is left out if the user lacks the read.
func TestConsent_WriteNeedsRead(t *testing.T) {
	p, ws := inWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes)
	attempt := connector.Begin()
	attempt.Query.Set("scope", harness.WriteProgrammes)
	page := p.Person(t, ws.Owner).Consent(t, attempt.Query)
	page.WantsText(t, "See programmes", "Add and change programmes")
	if tokens := attempt.Post(t, attempt.CodeForm(page.Approve(t))).Tokens(t); tokens.Scope != connector.Scope {
		t.Errorf("granted %q", tokens.Scope)
	}
	writer := p.Person(t, ws.Member(t, harness.WriteProgrammes)).SignedIn(t)
	writer.Open(t, p.AuthorizeURL(connector.Begin().Query)).WantsPage(t, http.StatusForbidden).
		WantsText(t, "See programmes")

		// A connector that was registered for the write only gets the write only.
	drop := ws.Connector(t, harness.WriteProgrammes)
	if tokens := drop.Connect(t, p.Person(t, ws.Owner)); tokens.Scope != harness.WriteProgrammes {
		t.Errorf("granted %q", tokens.Scope)
	}
}

// wantsError checks for an error of RFC 6749, section 4.1.2.1, with state and iss (RFC 9207) and no other parameter.
// Several codes mean that the contract allows any of them. An empty state means that the callback must not have one.
func wantsError(t testing.TB, c harness.Callback, uri, state, issuer string, codes ...string) {
	t.Helper()
	want := []string{"error", "error_description", "iss", "state"}
	if state == "" {
		want = want[:3]
	}
	if c.URI != uri || !slices.Equal(c.Names(), want) {
		t.Errorf("redirected to %s with %v, want %s with %v", c.URI, c.Names(), uri, want)
	}
	if !slices.Contains(codes, c.Values.Get("error")) || c.Values.Get("error_description") == "" {
		t.Errorf("error %q (%s), want %v and a description", c.Values.Get("error"),
			harness.Redact(c.Values.Get("error_description")), codes)
	}
	if c.Values.Get("state") != state || c.Values.Get("iss") != issuer {
		t.Errorf("wrong state or iss in the error: iss %q, state of %d bytes, want %d", c.Values.Get("iss"),
			len(c.Values.Get("state")), len(state))
	}
}
