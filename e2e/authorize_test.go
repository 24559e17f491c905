package e2e

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/oauth2"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Contract, section 4: which requests get a page, which are redirected, and the order of the checks.

// change returns the request with one parameter replaced, or removed if there are no values.
func change(request url.Values, name string, values ...string) url.Values {
	out := maps.Clone(request)
	out[name] = values
	return out
}

// A request whose client or callback is not verified gets a page, before and after login, and never a redirect.
// TestIdentify_ErrorIsPage of engine has more of them.
func TestAuthorize_BadClientOrCallbackShowsPage(t *testing.T) {
	p := inParallel(t)
	app := p.DemoConfidential().Request()
	callback := app.Get("redirect_uri")
	to := func(uri string) url.Values { return change(app, "redirect_uri", uri) }
	requests := map[string]url.Values{
		"client in capitals": change(app, "client_id", strings.ToUpper(app.Get("client_id"))),
		"client in braces":   change(app, "client_id", "{"+app.Get("client_id")+"}"),
		"empty client":       change(app, "client_id", ""),
		"empty callback":     to(""),
		"callback, query":    to(callback + "?x=1"),
		"callback, fragment": to(callback + "#x"),
		"callback, path up":  to(strings.Replace(callback, "/callback", "/x/../callback", 1)),
		"callback, user":     to(strings.Replace(callback, "127.0.0.1", "127.0.0.1@evil.example", 1)),
		"callback, prefix":   to(strings.TrimSuffix(callback, "k")),
		"callback twice":     change(app, "redirect_uri", callback, callback),
	}
	stranger, owner := p.Person(t, p.Demo.Users.Owner), p.Person(t, p.Demo.Users.Owner).SignedIn(t)
	for name, request := range requests {
		t.Run(name, func(t *testing.T) {
			stranger.Open(t, p.AuthorizeURL(request)).WantsPage(t, http.StatusBadRequest)
			owner.Open(t, p.AuthorizeURL(request)).WantsPage(t, http.StatusBadRequest)
		})
	}
	for _, malformed := range []string{"", app.Encode() + "&x=%zz"} {
		stranger.Open(t, p.AppURL+"/oauth/authorize?"+malformed).WantsPage(t, http.StatusBadRequest)
	}
}

// "then login (RFC 9700 4.11.2: nobody is redirected before)": an invalid request is not an open redirector.
// TestParseAuthorization_RedirectsErrors of engine has more of them.
func TestAuthorize_OtherErrorsRedirectToCallback(t *testing.T) {
	p := inParallel(t)
	owner := p.Person(t, p.Demo.Users.Owner).SignedIn(t)
	q, confidential := p.DemoConnector().Begin().Query, p.DemoConfidential().Request()
	resource, pkce := q.Get("resource"), oauth2.S256ChallengeFromVerifier(strings.Repeat("v", 43))
	for _, c := range []struct {
		name, code string
		request    url.Values
	}{
		{"challenge empty", "invalid_request", change(q, "code_challenge", "")},
		{"challenge, bad letter", "invalid_request", change(q, "code_challenge", strings.Repeat("*", 43))},
		{"method small", "invalid_request", change(q, "code_challenge_method", "s256")},
		{"resource below", "invalid_target", change(q, "resource", resource+"/programmes")},
		{"resource capitals", "invalid_target", change(q, "resource", strings.ToUpper(resource))},
		{"scope wildcard", "invalid_scope", change(q, "scope", "programmes:*:programmes")},
		{"scope, tab", "invalid_scope", change(q, "scope", harness.ReadProgrammes+"\t"+harness.ReadForms)},
		{"scope, API access", "invalid_scope", change(q, "scope", harness.APIAccess)},
		{"state of too many bytes", "invalid_request", change(confidential, "state", strings.Repeat("é", 1025))},
		{"confidential, no method", "invalid_request", change(confidential, "code_challenge", pkce)},
	} {
		t.Run(c.name, func(t *testing.T) {
			state := c.request.Get("state")
			if len(state) > 2048 {
				state = "" // it is not returned
			}
			stranger := p.Person(t, p.Demo.Users.Owner)
			before := stranger.Open(t, p.AuthorizeURL(c.request))
			if before.Status == http.StatusSeeOther {
				before = stranger.Follow(t, before) // fails unless within the app
			}
			if !before.IsLogin() {
				t.Errorf("before login, want the login page:\n%s", before)
			}
			page := owner.Open(t, p.AuthorizeURL(c.request))
			wantsError(t, page.Callback(t), c.request.Get("redirect_uri"), state, p.BaseURL, c.code)
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
			for button, want := range map[string]string{
				"approve": "code iss state", "deny": "error error_description iss state",
			} {
				callback := owner.Consent(t, change(p.DemoConfidential().Request(), "state", state)).Press(t, button).
					Callback(t)
				names := strings.Join(callback.Names(), " ")
				if callback.Values.Get("state") != state || names != want ||
					callback.Values.Get("iss") != p.BaseURL || callback.URI != p.DemoConfidential().RedirectURI {
					t.Errorf("%s: redirected to %s with %s, want %s; the state is %q", button, callback.URI, names,
						want, callback.Values.Get("state"))
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

// A write permission is never granted without its read permission: a request for the write adds the read.
// TestAddRequiredReads_OnlyWhereUserAndClientMay of consent has the exceptions.
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
}

// wantsError checks for an error of RFC 6749, section 4.1.2.1, with state and iss (RFC 9207) and no other parameter.
// An empty state means that the callback must not have one.
func wantsError(t testing.TB, c harness.Callback, uri, state, issuer, code string) {
	t.Helper()
	want := []string{"error", "error_description", "iss", "state"}
	if state == "" {
		want = want[:3]
	}
	if c.URI != uri || !slices.Equal(c.Names(), want) {
		t.Errorf("redirected to %s with %v, want %s with %v", c.URI, c.Names(), uri, want)
	}
	if c.Values.Get("error") != code || c.Values.Get("error_description") == "" {
		t.Errorf("error %q (%s), want %s and a description", c.Values.Get("error"),
			harness.Redact(c.Values.Get("error_description")), code)
	}
	if c.Values.Get("state") != state || c.Values.Get("iss") != issuer {
		t.Errorf("wrong state or iss in the error: iss %q, state of %d bytes, want %d", c.Values.Get("iss"),
			len(c.Values.Get("state")), len(state))
	}
}
