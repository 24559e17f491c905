package gateway

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// A body that is larger than a route's limit is rejected by the route in its error shape (contract, sections 3 and
// 6). One that is larger than the gateway's limit is rejected by the gateway in the same shape, with or without a
// Content-Length.
func TestLimits_Bodies(t *testing.T) {
	each(t, func(t *testing.T, s *site, f *front) {
		p := s.product(t, f.transport(t))
		ws := p.NewWorkspace(t)
		list := p.In(ws.Workspace, ws.Token)
		const kib, mib = 1 << 10, 1 << 20
		for _, size := range []int{65*kib + 1, 5 * mib} { // beyond the route, beyond the gateway
			body := strings.Repeat("x", size)
			p.API().Send(t, http.MethodPost, harness.TokenPath, formType, body).
				WantsFlat(t, http.StatusRequestEntityTooLarge, "invalid_request")
			list.Send(t, http.MethodPost, harness.ListPath, "application/json", body).
				WantsNested(t, http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE")
			p.App().Send(t, http.MethodPost, "/login", formType, body).Wants(t, http.StatusRequestEntityTooLarge)
		}
		// The largest body that a route accepts passes: an import of nearly 2 MiB.
		rows := "name\n" + strings.Repeat("Lunch club "+strings.Repeat("x", 80)+"\n", 2*mib/92-1)
		list.Send(t, http.MethodPost, harness.ListPath+"/imports", "text/csv", rows).Wants(t, http.StatusAccepted)
		// Without a Content-Length.
		for _, transport := range []*http.Transport{f.transport(t), f.oldTransport(t, "")} {
			for path, code := range map[string]string{
				harness.TokenPath: `"invalid_request"`, harness.ListPath: `"PAYLOAD_TOO_LARGE"`,
			} {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.BaseURL+path,
					io.MultiReader(strings.NewReader(strings.Repeat("x", 5*mib))))
				must(t, err)
				request.Header.Set("Content-Type", "application/json")
				request.Header.Set("Authorization", "Bearer "+ws.Token)
				request.Header.Set("X-Tenant-Id", ws.Workspace.ID)
				response, err := transport.RoundTrip(request)
				if err != nil && !transport.ForceAttemptHTTP2 {
					continue // a caller that is still sending may lose the response: the connection is closed
				}
				must(t, err)
				body, _ := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if response.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(string(body), code) {
					t.Errorf("%s, %s, without a length: %d %.200s", path, response.Proto, response.StatusCode,
						harness.Redact(string(body)))
				}
			}
		}
	})
}

// Headers are limited too, by the gateway or by a service.
func TestLimits_Headers(t *testing.T) {
	tooLong := []int{http.StatusBadRequest, http.StatusRequestURITooLong, http.StatusRequestHeaderFieldsTooLarge}
	each(t, func(t *testing.T, s *site, f *front) {
		for name, text := range map[string]string{
			"a long header": "GET /v1/docs HTTP/1.1\r\nHost: " + apiHost + "\r\nX: " +
				strings.Repeat("x", 64<<10) + "\r\n\r\n",
			"many headers": "GET /v1/docs HTTP/1.1\r\nHost: " + apiHost + "\r\n" +
				strings.Repeat("X-Another: "+strings.Repeat("x", 100)+"\r\n", 600) + "\r\n",
			"a long path": "GET /" + strings.Repeat("x", 64<<10) + " HTTP/1.1\r\nHost: " + apiHost + "\r\n\r\n",
		} {
			for _, status := range statuses(f.sendRaw(t, apiHost, text)) {
				if !slices.Contains(tooLong, status) {
					t.Errorf("%s: %d", name, status)
				}
			}
		}
	})
}

// TestFlow_WorksThroughGateway: consent, code, token, a call, MCP, refresh, and a replay that revokes the grant. All
// of these contain secrets, which TestMain searches for in the logs. This test checks that the requests are in the
// gateway's log.
func TestFlow_WorksThroughGateway(t *testing.T) {
	each(t, func(t *testing.T, s *site, f *front) {
		p := s.product(t, f.transport(t))
		ws := p.NewWorkspace(t)
		person := p.Person(t, ws.Owner)
		connector := ws.ConnectorFor(t, p.BaseURL+"/mcp", harness.ReadProgrammes)
		first := connector.Connect(t, person)
		call := func(token string) harness.Answer {
			return p.As(token).With("Accept", "application/json, text/event-stream").JSON(t, http.MethodPost, "/mcp",
				`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami"}}`)
		}
		who := call(first.AccessToken).Wants(t, http.StatusOK)
		if !strings.Contains(string(who.Body), ws.Workspace.Name) {
			t.Errorf("whoami does not name the workspace:\n%s", who)
		}
		second := connector.Refresh(t, first.RefreshToken).Tokens(t)
		call(second.AccessToken).Wants(t, http.StatusOK)
		connector.Refresh(t, first.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		answer := call(second.AccessToken)
		answer.WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
		if challenge := answer.Header.Get("WWW-Authenticate"); !strings.Contains(challenge, p.BaseURL+"/.well-known/") {
			t.Errorf("wrong resource_metadata in the challenge: %s", challenge)
		}
		// Secrets where they do not belong.
		p.API().With("Referer", p.AppURL+"/?code="+first.RefreshToken).With("Cookie", "x="+first.RefreshToken).
			With("X-Api-Key", first.RefreshToken).With("User-Agent", first.RefreshToken).
			Get(t, "/v1/account/oauth/jwks?access_token="+first.RefreshToken).Wants(t, http.StatusOK)
		for _, path := range []string{harness.TokenPath, "/oauth/authorize", "/mcp"} {
			f.wantLogged(t, `"`+path+`"`)
		}
	})
}

// wantLogged waits until the part is in the gateway's log.
func (f *front) wantLogged(t *testing.T, part string) {
	t.Helper()
	await.True(t, part+" is in the gateway's log", func() bool {
		text, err := os.ReadFile(f.log)
		must(t, err)
		return strings.Contains(string(text), part)
	})
}

// claims are the headers in which a caller can claim its address, host, protocol and path.
var claims = []string{
	"X-Forwarded-For", "Forwarded", "X-Real-Ip", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port",
	"X-Forwarded-Prefix", "X-Forwarded-Server", "X_Forwarded_For", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip",
}

// The services use the address of the connection to the gateway: the limit of wrong passwords is per account and
// address (contract, section 7). That claimed ones do not arrive, TestForwarded_CallerHeadersAreRemoved shows for both
// gateways.
func TestForwarded_ServicesSeeCallerAddress(t *testing.T) {
	t.Parallel()
	s := started(t)
	f := s.fronts[max(0, slices.IndexFunc(s.fronts, func(f *front) bool { return f.missing == nil }))]
	f.skipIfMissing(t)
	here, elsewhere := s.product(t, f.oldTransport(t, "127.0.0.31")), s.product(t, f.oldTransport(t, "127.0.0.32"))
	user := here.Database.User(t)
	try := func(p *harness.Product) harness.Page {
		return p.Person(t, user).Submit(t, harness.Form{
			Action: p.AppURL + "/login",
			Fields: url.Values{"email": {user.Email}, "password": {"wrong"}},
		})
	}
	for range 10 {
		try(here).Wants(t, http.StatusBadRequest)
	}
	try(here).Wants(t, http.StatusTooManyRequests)
	try(elsewhere).Wants(t, http.StatusBadRequest)
}

// The services receive only the gateway's own headers, also if the caller says that they end at the gateway. The
// test's server returns the headers that it receives.
func TestForwarded_CallerHeadersAreRemoved(t *testing.T) {
	t.Parallel()
	echo := serving(t, func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Host", r.Host)
		_ = json.NewEncoder(w).Encode(r.Header)
	})
	const endAtGateway = "X-Forwarded-For, X-Forwarded-Host, X-Forwarded-Proto, X-Request-Id"
	before(t, echo, func(t *testing.T, f *front, base string) {
		transport := f.oldTransport(t, "127.0.0.33")
		for path, connection := range map[string]string{
			"/v1/account/oauth/jwks": "keep-alive", "/v1/docs": "keep-alive", "/mcp": "keep-alive",
			"/v1/account/oauth/token": endAtGateway, "/v1/openapi.json": endAtGateway,
		} {
			sent := http.Header{"Authorization": {"Bearer kept"}, "Idempotency-Key": {"kept"}}
			sent.Set("Connection", connection)
			for _, name := range slices.Concat(claims,
				[]string{"Traceparent", "Tracestate", "Baggage", "X-Request-Id"}) {
				sent.Set(name, "203.0.113.9")
			}
			response, body := ask(t, transport, http.MethodGet, base+path, "", sent)
			var got http.Header
			must(t, json.Unmarshal([]byte(body), &got))
			for name, values := range got {
				if strings.Contains(strings.Join(values, " "), "203.0.113.9") {
					t.Errorf("%s: %s arrives: %q", path, name, values)
				}
			}
			host := strings.TrimPrefix(base, "https://")
			for name, want := range map[string]string{
				"X-Forwarded-For": "127.0.0.33", "X-Forwarded-Proto": "https", "X-Forwarded-Host": host, "Host": host,
				"X-Request-Id": response.Header.Get("X-Request-Id"), "Authorization": "Bearer kept",
				"Idempotency-Key": "kept",
			} {
				if values := got.Values(name); len(values) != 1 || values[0] != want {
					t.Errorf("%s: %s is %q, want %q", path, name, values, want)
				}
			}
		}
	})
}
