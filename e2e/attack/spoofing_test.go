package attack

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// Headers in which a caller makes claims about itself or about us: only the configured proxy is believed.

// addressHeaders are the headers in which a caller can claim an address.
var addressHeaders = []string{
	"X-Forwarded-For", "Forwarded", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip",
	"X-Originating-Ip", "X-Cluster-Client-Ip", "Client-Ip", "X_Forwarded_For",
}

func TestLoginLimit_IgnoresClaimedAddress(t *testing.T) {
	p := newProduct(t)
	user := p.Database.User(t)
	try := func(path, password string, at int) int {
		browser := p.Person(t, user)
		for _, name := range addressHeaders {
			address := fmt.Sprintf("203.0.113.%d", at)
			if name == "Forwarded" {
				address = "for=" + address
			}
			browser.Header.Set(name, address)
		}
		return browser.Submit(t, formAt(p, path, url.Values{"email": {user.Email}, "password": {password}})).Status
	}
	for at := range 10 {
		if status := try("/login", "wrong", at); status != http.StatusBadRequest {
			t.Fatalf("wrong password %d: %d", at, status)
		}
	}
	if status := try("/login", user.Password, 200); status != http.StatusTooManyRequests {
		t.Errorf("an address that the caller claims is believed: %d", status)
	}
}

func TestLoginLimit_CountsAllPasswordForms(t *testing.T) {
	p := newProduct(t)
	ws := p.NewWorkspace(t)
	member := p.Person(t, ws.Owner).SignedIn(t)
	p.Database.Token(t, ws.Workspace, ws.Owner, harness.ReadProgrammes)
	again := func() harness.Page {
		return member.Submit(t, formAt(p, "/login/again", url.Values{"password": {"wrong"}}))
	}
	for range 5 {
		again().Wants(t, http.StatusBadRequest)
		logIn(t, p, p.Person(t, ws.Owner), "wrong").Wants(t, http.StatusBadRequest)
	}
	again().Wants(t, http.StatusTooManyRequests).WantsRetryAfter(t)
	logIn(t, p, p.Person(t, ws.Owner), ws.Owner.Password).Wants(t, http.StatusTooManyRequests)
}

func TestResponses_DoNotEchoHostHeader(t *testing.T) {
	p, e := newAttack(t)
	for _, header := range []map[string]string{
		{"Host": "evil.example"},
		{"X-Forwarded-Host": "evil.example"},
		{
			"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "https", "X-Forwarded-Port": "444",
			"X-Forwarded-Prefix": "/evil.example", "X-Forwarded-Server": "evil.example",
		},
		{"Forwarded": "for=1.2.3.4;host=evil.example;proto=https"},
		{"X-Original-Host": "evil.example"},
		{"X-Host": "evil.example"},
		{"Host": "evil.example:80@localhost"},
		{"Origin": "https://evil.example", "Referer": "https://evil.example/"},
		{"X-Original-Url": "https://evil.example/"},
		{"X-Rewrite-Url": "https://evil.example/"},
	} {
		api, app, stranger := p.In(e.Workspace, e.Token), p.App(), p.API()
		for name, value := range header {
			api, app, stranger = api.With(name, value), app.With(name, value), stranger.With(name, value)
		}
		authorize := "/oauth/authorize?" + e.connector.Begin().Query.Encode()
		answers := []harness.Answer{
			stranger.Get(t, harness.ListPath), api.Get(t, "/v1/openapi.json"),
			stranger.Get(t, "/authorize?"+e.connector.Begin().Query.Encode()), app.Get(t, authorize),
			app.Get(t, "/settings/user"), app.Get(t, "/login"),
			app.Form(t, "/login", url.Values{"email": {e.Owner.Email}, "password": {e.Owner.Password}}),
			api.JSON(t, http.MethodPost, harness.ListPath, map[string]any{"name": "Pantry"}),
			api.Send(t, http.MethodPost, harness.ListPath+"/imports", "text/csv", "name\nPantry\n"),
			stranger.Get(t, e.publicForm()+"/embed"), stranger.JSON(t, http.MethodPost, "/mcp", `{}`),
		}
		for _, path := range []string{
			"/.well-known/oauth-authorization-server", "/.well-known/openid-configuration",
			"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/v1", "/v1/docs",
			"/v1/engage/public/embed.js",
		} {
			answers = append(answers, stranger.Get(t, path))
		}
		for _, answer := range answers {
			if answer.Status >= http.StatusInternalServerError {
				t.Errorf("%v:\n%s", header, answer)
			}
			for name, values := range answer.Header {
				if strings.Contains(strings.Join(values, " "), "evil") {
					t.Errorf("%v: the header %s contains the host:\n%s", header, name, answer)
				}
			}
			if strings.Contains(string(answer.Body), "evil.example") {
				t.Errorf("%v: the body contains the host:\n%s", header, answer)
			}
		}
	}
}

// TestGateway_PassesNoHiddenRequest hides a request in others with an ambiguous end, at the gateway of this stack. It
// was served if a service has logged its path. TestSmuggling_NoHiddenRequestIsServed does so at Caddy and nginx.
func TestGateway_PassesNoHiddenRequest(t *testing.T) {
	p := newProduct(t)
	host, mark := strings.TrimPrefix(p.BaseURL, "http://"), "/v1/account/"+strings.ToLower(rand.Text())
	last := "GET " + mark + "-last HTTP/1.1\r\n" + closing // ends the connection
	for _, path := range []string{harness.TokenPath, harness.ListPath} {
		for name := range harness.SmugglingRequests(path, host, "") {
			hidden := mark + "-hidden-" + strings.NewReplacer(" ", "-", ",", "").Replace(name)
			speak(t, p.BaseURL, harness.SmugglingRequests(path, host, hidden)[name]+last)
		}
	}
	speak(t, p.BaseURL, "GET "+mark+"-plain HTTP/1.1\r\nHost: x\r\n\r\n"+last) // no request hides it
	var logs []byte
	await.True(t, "a second request that is not hidden is logged", func() (logged bool) {
		var err error
		logs, err = harness.ReadLogs(shared(t).LogDir())
		must(t, err)
		return strings.Contains(string(logs), mark+"-plain")
	})
	for line := range strings.Lines(string(logs)) {
		if strings.Contains(line, `"path":"`+mark+"-hidden") {
			t.Errorf("a hidden request was served: %s", harness.Redact(line))
		}
	}
}

func TestHeaders_ChangeNeitherMethodNorPath(t *testing.T) {
	p, e := newAttack(t)
	was := e.inventory(t)
	client := e.Clients() + "/" + e.app.ClientID
	for _, name := range []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"} {
		p.As(e.Token).With(name, "DELETE").Get(t, client).Wants(t, http.StatusOK)
		p.As(e.Token).With(name, "DELETE").JSON(t, http.MethodPost, client, `{}`).Wants(t, http.StatusMethodNotAllowed)
	}
	p.As(e.Token).Get(t, client+"?_method=DELETE").Wants(t, http.StatusOK)
	for _, name := range []string{
		"X-Original-Url", "X-Rewrite-Url", "X-Original-Uri", "X-Forwarded-Path", "X-Forwarded-Uri",
	} {
		p.API().With(name, "/healthz").Get(t, harness.ListPath).Wants(t, http.StatusUnauthorized)
		p.API().With(name, harness.ListPath).Get(t, "/nothing").Wants(t, http.StatusNotFound)
	}
	e.untouched(t, was, "a header")
}
