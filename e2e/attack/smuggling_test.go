package attack

import (
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Requests that the gateway and the service behind it could read differently, sent byte by byte.

// speak sends raw bytes to an address of the product and returns every response until the connection ends.
func speak(t *testing.T, address, text string) []*http.Response {
	t.Helper()
	_, port, _ := strings.Cut(strings.TrimPrefix(address, "http://"), ":")
	connection, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(t.Context(), "tcp",
		net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		t.Error(err)
		return nil
	}
	return harness.SendRaw(connection, text)
}

// TestGateway_RefusesSmuggledRequests hides a request in each of these requests. A hidden request was served if a
// log of the gateway or of a service has its path.
func TestGateway_RefusesSmuggledRequests(t *testing.T) {
	p, e := newAttack(t)
	mark := strings.ToLower(rand.Text())
	var group sync.WaitGroup
	turns := make(chan struct{}, 24) // most wait for a response that never comes
	for at, target := range [][2]string{
		{p.BaseURL, harness.TokenPath},
		{p.BaseURL, harness.ListPath},
		{p.AppURL, "/login"},
		{shared(t).ResourceURL, e.publicForm() + "/submissions"},
	} {
		address, path := target[0], target[1]
		hidden := fmt.Sprintf("/v1/account/smuggled-%s-%d-", mark, at)
		for name, text := range harness.SmugglingRequests(path, strings.TrimPrefix(address, "http://"), hidden) {
			group.Go(func() {
				turns <- struct{}{}
				defer func() { <-turns }()
				marked := hidden + strings.NewReplacer(" ", "-", ",", "").Replace(name)
				for _, response := range speak(t, address, strings.ReplaceAll(text, hidden, marked)) {
					if response.StatusCode >= 500 && response.StatusCode != http.StatusNotImplemented &&
						response.StatusCode != http.StatusHTTPVersionNotSupported {
						t.Errorf("%s at %s%s: %d", name, address, path, response.StatusCode)
					}
				}
			})
		}
	}
	group.Wait()
	// Served requests are logged: a second request in plain sight on the same connection is.
	plain := "/v1/account/plain-" + mark
	for range 2 {
		speak(t, p.BaseURL, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET "+plain+" HTTP/1.1\r\nHost: "+
			"localhost\r\nConnection: close\r\n\r\n")
	}
	logs, err := harness.ReadLogs(shared(t).LogDir())
	must(t, err)
	if !strings.Contains(string(logs), `"path":"`+plain) {
		t.Fatal("a request that was served is in no log: the test proves nothing")
	}
	for line := range strings.Lines(string(logs)) {
		if strings.Contains(line, `"path":"/v1/account/smuggled-`+mark) {
			t.Errorf("a hidden request was served: %s", harness.Redact(line))
		}
	}
	// The next users of the gateway's connections to the services get their own responses.
	for range 20 {
		p.In(e.Workspace, e.Token).Get(t, harness.ListPath+"/"+e.programme).Wants(t, http.StatusOK)
		p.API().Get(t, "/v1/account/oauth/jwks").Wants(t, http.StatusOK)
	}
}

// TestPaths_OtherSpellingsAreRefused checks that no other spelling of a path bypasses a check or reaches the other
// service or the pages.
func TestPaths_OtherSpellingsAreRefused(t *testing.T) {
	p, e := newAttack(t)
	list, clients := harness.ListPath, e.Clients()
	auth := "Authorization: Bearer " + e.Token + "\r\nX-Tenant-Id: " + e.Workspace.ID + "\r\n"
	for _, target := range []string{
		"//v1/programmes/programmes", "/v1//programmes/programmes", "/v1/./programmes/programmes",
		"/v1/x/../programmes/programmes", "/./v1/programmes/programmes", "/v1/programmes/programmes/",
		"/v1/programmes/programmes/.", "/v1/programmes/programmes/..", "/v1/programmes%2Fprogrammes",
		"/v1/%70rogrammes/programmes", "/V1/programmes/programmes", "/v1/programmes/programmes%00",
		"/v1/programmes/programmes;x=1", "/v1/programmes/programmes/..;/programmes", "/v1/programmes/programmes%20",
		"/v1/programmes/programmes%0d%0a", `/v1\programmes\programmes`, "/v1/programmes/programmes%3Flimit=1",
		"/v1/programmes/programmes%23", "/programmes/programmes", "/v1/account/../programmes/programmes",
		"/v1/account/..%2fprogrammes/programmes", "/v1/account%2f..%2fprogrammes/programmes",
		"/v1/account/..;/programmes/programmes", "/v1/engage/../programmes/programmes",
		"/v1/engage/public/../../programmes/programmes",
		strings.Replace(clients, "/v1/account", "/v1/programmes/../account", 1),
		strings.Replace(clients, "/account/", "/%61ccount/", 1), strings.Replace(clients, "/account/", "/account//", 1),
		clients + "/", clients + "/.", clients + "/" + e.app.ClientID + "/", clients + "%2F" + e.app.ClientID,
		clients + "/..%2f" + e.app.ClientID, strings.ToUpper(clients),
		"/v1/account/tenants/" + e.Workspace.ID + "/x/../oauth-clients", "/mcp/../v1/programmes/programmes", "/mcp/",
		"/.well-known/../v1/programmes/programmes",
		"/.well-known/oauth-authorization-server/../../v1/programmes/programmes",
	} {
		for _, response := range speak(t, p.BaseURL, "GET "+target+" HTTP/1.1\r\nHost: localhost\r\nConnection: "+
			"close\r\n"+auth+"\r\n") {
			if response.StatusCode != http.StatusNotFound && response.StatusCode != http.StatusBadRequest &&
				response.StatusCode != http.StatusMethodNotAllowed && response.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s: %d %s", target, response.StatusCode, response.Header.Get("Location"))
			}
		}
	}
	// The pages are served at the app's address only; no path at the API's address reaches them.
	for _, target := range []string{
		"/login", "/settings/user", "/oauth/authorize", "/static/site.css", "/v1/account/../../login",
		"/v1/account/..%2f..%2flogin", "/v1/account/..;/..;/login", "/v1/account/%2e%2e/%2e%2e/login",
		"/.well-known/oauth-authorization-server/../../login",
		"/.well-known/oauth-authorization-server/..%2f..%2fsettings/user",
		"/.well-known/openid-configuration%2f..%2f..%2flogin", "/v1/account//login", "/token/../login", "//login",
		"/register/../login", "/v1/account/readyz", "/v1/account/../../readyz",
	} {
		for _, response := range speak(t, p.BaseURL, "GET "+target+" HTTP/1.1\r\nHost: localhost\r\nConnection: "+
			"close\r\nCookie: "+e.person.Cookies()+"\r\n\r\n") {
			if response.StatusCode < 400 || response.Header.Get("Set-Cookie") != "" {
				t.Errorf("%s at the API's address: %d", target, response.StatusCode)
			}
		}
	}
	// Absolute URLs and other hosts in the request line change nothing.
	for _, target := range []string{
		"http://evil.example" + list, "http://localhost" + list, "https://localhost:1" + list,
		"http://169.254.169.254/latest/meta-data/", "http://127.0.0.1:1/", "evil.example:80", "*", "/@evil.example",
		"?x", "http:", "",
	} {
		for _, host := range []string{
			"localhost", "localhost.", "LOCALHOST", "evil.example", "localhost:99999", "localhost evil", "[::1", "",
		} {
			for _, method := range []string{"GET", "CONNECT"} {
				request := method + " " + target + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"
				for _, response := range speak(t, p.BaseURL, request) {
					if response.StatusCode < 400 ||
						response.StatusCode >= 500 && response.StatusCode != http.StatusHTTPVersionNotSupported {
						t.Errorf("%s %s, Host %q: %d %s", method, target, host, response.StatusCode,
							response.Header.Get("Location"))
					}
				}
			}
		}
	}
	p.In(e.Workspace, e.Token).Get(t, list).Wants(t, http.StatusOK)
}
