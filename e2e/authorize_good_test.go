package e2e

import (
	"net/url"
	"strings"
	"testing"
)

// Contract, section 4: valid authorization requests and their results.

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

func TestLogin_ReturnsToRequest(t *testing.T) {
	t.Parallel()
	p := enter(t)
	app := p.DemoConfidential()
	request := app.Request()
	request.Set("state", `a b+c%&=;?/#"<é>'`)
	request.Set("ui_locales", "cy en") // not supported, and ignored
	person := p.Person(t, p.Demo.Users.Owner)
	login := person.Arrive(t, p.AuthorizeURL(request))
	if !login.IsConsent() {
		t.Fatalf("login did not lead to the consent page:\n%s", login)
	}
	callback := login.Press(t, "approve").Callback(t)
	if got := callback.Values.Get("state"); got != request.Get("state") {
		t.Errorf("the state is %q after login, want %q", got, request.Get("state"))
	}
}
