package gateway

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/gateway"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

const (
	account  = "authserver"
	resource = "resourceapi"
)

// paths are paths of the API, by the service that gets them (contract, section 1).
var paths = map[string][]string{
	account: {
		"/v1/account", "/v1/account/", "/v1/account/oauth/token", "/v1/account/oauth/jwks", "/v1/account/nothing",
		"/.well-known/oauth-authorization-server", "/.well-known/oauth-authorization-server/v1",
		"/.well-known/oauth-authorization-server/mcp", "/.well-known/openid-configuration",
		"/.well-known/openid-configuration/mcp", "/.well-known/openid-configuration/nothing",
		"/mcp/.well-known/oauth-authorization-server", "/mcp/.well-known/openid-configuration",
		"/authorize", "/token", "/register", "/.well-known/jwks.json",
		"/v1/account/../programmes/programmes", "/v1/account/..%2fprogrammes/programmes", "/v1/account/../../login",
		"/v1/account/..;/..;/login", "/.well-known/oauth-authorization-server/../../login",
	},
	resource: {
		"/.well-known/jwks.json/x", "/", "/v1", "/v1/programmes/programmes", "/v1/accounts", "/v1/accountx/y",
		"/v1/openapi.json", "/v1/docs", "/v1/engage/public/forms/x", "/mcp", "/mcp/",
		"/mcp/.well-known/oauth-protected-resource", "/mcp/.well-known/openid-configuration/x",
		"/.well-known/oauth-protected-resource/mcp", "/.well-known/nothing", "/token/x", "/tokens",
		"/oauth/authorize", "/login", "/nothing", "/x/v1/account/oauth/jwks", "/healthy", "/v1/healthz", "/v1/readyz",
		"/v1/programmes/../account/oauth/jwks", "/v1/%61ccount/oauth/jwks",
	},
}

// TestRouting_PathsReachTheirService finds the id of each response only in the log of the path's service. The gateway
// that `make run` starts must agree.
func TestRouting_PathsReachTheirService(t *testing.T) {
	each(t, func(t *testing.T, s *site, f *front) {
		for _, transport := range []*http.Transport{f.transport(t), f.oldTransport(t, "")} {
			p := s.product(t, transport)
			want := map[string]string{} // id → service
			for service, its := range paths {
				for _, path := range its {
					if gateway.IsAccount(path) != (service == account) {
						t.Errorf("%s: the local gateway disagrees", path)
					}
					for _, query := range []string{"", "?a=/v1/account/x&code=1"} {
						answer := plainly(t, transport, p.BaseURL+path+query)
						want[answer.Header.Get("X-Request-Id")] = service
					}
				}
			}
			for _, path := range []string{
				"/", "/login", "/oauth/authorize", "/static/site.css", "/v1/account/oauth/jwks",
				"/v1/programmes/programmes", "/nothing",
			} {
				want[plainly(t, transport, p.AppURL+path).Header.Get("X-Request-Id")] = account
			}
			s.wantServed(t, want)
		}
	})
}

// plainly gets a URL and checks the headers that every response has.
func plainly(t *testing.T, transport *http.Transport, address string) *http.Response {
	t.Helper()
	response, _ := ask(t, transport, http.MethodGet, address, "", nil)
	if response.StatusCode >= http.StatusInternalServerError {
		t.Errorf("%s: %d", address, response.StatusCode)
	}
	wantsCommon(t, address, response.Header)
	return response
}

func wantsCommon(t *testing.T, path string, header http.Header) {
	t.Helper()
	if got := header.Values("Strict-Transport-Security"); len(got) != 1 || got[0] != "max-age=31536000" {
		t.Errorf("%s: Strict-Transport-Security %q", path, got)
	}
	if got := header.Values("X-Request-Id"); len(got) != 1 || len(got[0]) != 36 {
		t.Errorf("%s: X-Request-Id %q", path, got)
	}
	if strings.ContainsAny(header.Get("Server"), "0123456789") {
		t.Errorf("%s: Server shows the version of the gateway: %q", path, header.Get("Server"))
	}
}

// served returns the logs by service, for all its processes.
func (s *site) served(t *testing.T) map[string]string {
	t.Helper()
	logs := map[string]string{}
	for _, service := range []string{account, resource} {
		names, err := filepath.Glob(filepath.Join(s.stack.LogDir(), service+"*.log"))
		must(t, err)
		for _, name := range names {
			content, err := os.ReadFile(name)
			must(t, err)
			logs[service] += string(content)
		}
	}
	return logs
}

// wantServed checks that each request id is only in the log of its service.
func (s *site) wantServed(t *testing.T, want map[string]string) {
	t.Helper()
	want = maps.Clone(want)
	await.NoError(t, func() error {
		logs := s.served(t)
		for id, service := range want {
			for other, text := range logs {
				if other != service && strings.Contains(text, id) {
					t.Errorf("a request went to %s and not to %s: %s", other, service, lineWith(text, id))
					delete(want, id)
				}
			}
			if strings.Contains(logs[service], id) {
				delete(want, id)
			}
		}
		if len(want) > 0 {
			return fmt.Errorf("%d requests are not in the log of their service: %s", len(want), want)
		}
		return nil
	})
}

func lineWith(text, part string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			return harness.Redact(line)
		}
	}
	return ""
}

// Health checks and metrics are internal: from outside they are 404, and no service receives the request.
func TestRouting_HealthAndMetricsAreInternal(t *testing.T) {
	each(t, func(t *testing.T, s *site, f *front) {
		transport := f.transport(t)
		p := s.product(t, transport)
		sent := map[string]string{} // id → path
		for _, path := range []string{"/healthz", "/readyz", "/metrics", "/readyz?x=1", "/healthz/", "/metrics/x"} {
			for _, base := range []string{p.BaseURL, p.AppURL} {
				response := plainly(t, transport, base+path)
				if response.StatusCode != http.StatusNotFound {
					t.Errorf("%s%s: %d", base, path, response.StatusCode)
				}
				sent[response.Header.Get("X-Request-Id")] = path
			}
		}
		last := p.API().Get(t, "/v1/account/oauth/jwks").Wants(t, http.StatusOK).Header.Get("X-Request-Id")
		s.wantServed(t, map[string]string{last: account})
		for id, path := range sent {
			for service, log := range s.served(t) {
				if strings.Contains(log, id) {
					t.Errorf("%s received %s", service, path)
				}
			}
		}
		// Other spellings do not reach them.
		notServed := []int{http.StatusNotFound, http.StatusBadRequest, http.StatusMisdirectedRequest}
		for _, host := range []string{apiHost, appHost} {
			for _, request := range []string{
				"GET //readyz", "GET /./readyz", "GET /x/../readyz", "GET /%72eadyz", "GET /READYZ", "GET /readyz;x",
				"GET /readyz%20", "GET /readyz%3Fx", "GET /%2e/readyz", "GET /readyz#x",
				"GET https://" + apiHost + "/readyz", "GET http://localhost/readyz", `GET /\readyz`, "GET /readyz%00",
				"POST /readyz", "HEAD /readyz",
			} {
				for _, more := range []string{"", "Transfer-Encoding: chunked\r\n", "X-Original-URL: /readyz\r\n"} {
					text := request + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n" + more +
						"\r\n0\r\n\r\n"
					for _, status := range statuses(f.sendRaw(t, host, text)) {
						if !slices.Contains(notServed, status) {
							t.Errorf("%s at %s with %q: %d", request, host, more, status)
						}
					}
				}
			}
		}
	})
}

// A request for another host gets 421.
func TestRouting_UnknownHostIs421(t *testing.T) {
	each(t, func(t *testing.T, s *site, f *front) {
		for _, host := range []string{
			"evil.example", "localhost", f.address, "sub." + apiHost, apiHost + ".evil.example",
		} {
			answers := f.sendRaw(t, apiHost,
				"GET /v1/account/oauth/jwks HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
			if len(answers) != 1 || answers[0].StatusCode != http.StatusMisdirectedRequest {
				t.Errorf("Host %s: %v", host, statuses(answers))
			}
		}
	})
}

func statuses(answers []*http.Response) []int {
	var all []int
	for _, answer := range answers {
		all = append(all, answer.StatusCode)
	}
	return all
}
