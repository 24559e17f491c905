package e2e

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Contract, section 4: valid authorization requests and their results.

func TestAuthorize_ConfidentialNeedsNoResponseType(t *testing.T) {
	t.Parallel()
	p := enter(t)
	owner := p.Person(t, p.Demo.Users.Owner).SignedIn(t)
	request := p.DemoConfidential().Request()
	for name, query := range map[string]url.Values{
		"spec 4.4":           request,
		"response_type=code": change(request, "response_type", "code"),
	} {
		t.Run(name, func(t *testing.T) { owner.Consent(t, query) })
	}
}

// The scope parameter and the granted scope, for an application that requires read and write of programmes.
func TestAuthorize_ScopeRequestsSubset(t *testing.T) {
	t.Parallel()
	p := enter(t)
	owner := p.Person(t, p.Demo.Users.Owner).SignedIn(t)
	read, both := harness.ReadProgrammes, harness.ReadProgrammes+" "+harness.WriteProgrammes
	for name, c := range map[string]struct {
		scope   []string
		granted string
	}{
		"missing":                {nil, both},
		"empty":                  {[]string{""}, both},
		"spaces alone":           {[]string{"  "}, both},
		"all":                    {[]string{both}, both},
		"one":                    {[]string{read}, read},
		"one, twice":             {[]string{read + " " + read}, read},
		"surplus spaces":         {[]string{"  " + read + "   " + harness.WriteProgrammes + " "}, both},
		"offline_access alone":   {[]string{" offline_access"}, both},
		"offline_access and one": {[]string{"offline_access " + read}, read},
		"known ones beyond":      {[]string{read + " " + harness.ReadForms + " " + harness.APIAccess}, read},
	} {
		t.Run(name, func(t *testing.T) {
			attempt := p.DemoConnector().Begin()
			attempt.Query = change(attempt.Query, "scope", c.scope...)
			tokens := attempt.Post(t, attempt.CodeForm(attempt.Code(t, owner))).Tokens(t)
			if got := strings.Join(sorted(strings.Fields(tokens.Scope)), " "); got != c.granted {
				t.Errorf("granted %q, want %q", got, c.granted)
			}
		})
	}
}

func TestAuthorize_IgnoresUnknownParameters(t *testing.T) {
	t.Parallel()
	p := enter(t)
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
	t.Parallel()
	p := enter(t)
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
			}
		})
	}
}

// "Redirect URIs are compared exactly", and the query of the registered one stays unchanged.
func TestAuthorize_CallbackKeepsRegisteredQuery(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	own := "https://app.canal-lane.example/cb?b=%7e&a=1+2&a=3"
	body := harness.ConfidentialBody(harness.ReadProgrammes)
	body["redirectUris"] = []string{"https://app.canal-lane.example/cb", own}
	object := ws.Register(t, body).Wants(t, http.StatusCreated).Object(t)
	request := url.Values{"client_id": {object["clientId"].(string)}, "redirect_uri": {own}, "state": {"s"}}
	callback := p.Person(t, ws.Owner).Consent(t, request).Press(t, "approve").Callback(t)
	if !strings.HasPrefix(callback.Raw, "b=%7e&a=1+2&a=3&") || callback.Code() == "" {
		t.Error("the callback does not begin with the registered query, byte for byte")
	}
}

func TestAuthorize_HeadMatchesGet(t *testing.T) {
	t.Parallel()
	p := enter(t)
	owner := p.Person(t, p.Demo.Users.Owner).SignedIn(t)
	for _, address := range []string{
		p.AuthorizeURL(p.DemoConfidential().Request()),
		p.AppURL + "/oauth/authorize",
		p.AppURL + "/login",
	} {
		get, head := owner.Open(t, address), owner.Request(t, http.MethodHead, address, "", "")
		if get.Status != head.Status || len(head.Body) != 0 {
			t.Errorf("%s: GET %d, HEAD %d with %d bytes", get.Request, get.Status, head.Status, len(head.Body))
		}
	}
	for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPatch} {
		page := owner.Request(t, method, p.AppURL+"/oauth/authorize", "", "")
		wantsAllow(t, page.Wants(t, http.StatusMethodNotAllowed), "GET", "POST")
	}
}
