package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// A body that is larger than a route's limit is rejected by the route in its error shape (contract, sections 3 and
// 6). One that is larger than the gateway's limit is rejected by the gateway in the same shape, with or without a
// Content-Length.
func TestLimits_Bodies(t *testing.T) {
	each(t, func(t *testing.T, s *site, f *front) {
		p := s.product(t, f.transport())
		ws := p.NewWorkspace(t)
		list := p.In(ws.Workspace, ws.Token)
		const kib, mib = 1 << 10, 1 << 20
		for name, size := range map[string]int{"beyond the route": 65*kib + 1, "beyond the gateway": 5 * mib} {
			body := strings.Repeat("x", size)
			p.API().Send(t, http.MethodPost, harness.TokenPath, "application/x-www-form-urlencoded", body).
				WantsFlat(t, http.StatusRequestEntityTooLarge, "invalid_request")
			list.Send(t, http.MethodPost, harness.ListPath, "application/json", body).
				WantsNested(t, http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE")
			const form = "application/x-www-form-urlencoded"
			status := p.App().Send(t, http.MethodPost, "/login", form, body).Status
			if status != http.StatusRequestEntityTooLarge {
				t.Errorf("%s: status %d for a form at the app", name, status)
			}
		}
		// The largest body that a route accepts passes: an import of nearly 2 MiB.
		rows := "name\n" + strings.Repeat("Lunch club "+strings.Repeat("x", 80)+"\n", 2*mib/92-1)
		list.Send(t, http.MethodPost, harness.ListPath+"/imports", "text/csv", rows).Wants(t, http.StatusAccepted)
		// Without a Content-Length.
		for _, transport := range []*http.Transport{f.transport(), f.oldTransport("")} {
			for path, code := range map[string]string{
				harness.TokenPath: `"invalid_request"`,
				harness.ListPath:  `"PAYLOAD_TOO_LARGE"`,
			} {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.BaseURL+path,
					io.MultiReader(strings.NewReader(strings.Repeat("x", 5*mib))))
				must(t, err)
				request.Header.Set("Content-Type", "application/json")
				request.Header.Set("Authorization", "Bearer "+ws.Token)
				request.Header.Set("X-Tenant-Id", ws.Workspace.ID)
				response, err := transport.RoundTrip(request)
				if err != nil && !transport.ForceAttemptHTTP2 {
					// With HTTP/1.1 a caller that is still sending may lose the response: the
					// connection is closed.
					continue
				}
				must(t, err)
				body, _ := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if response.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(string(body), code) {
					t.Errorf("%s, %s, without a length: %d %.200s", path, response.Proto, response.StatusCode,
						harness.Redact(string(body)))
				}
			}
			transport.CloseIdleConnections()
		}
	})
}

// Headers are limited too, by the gateway or by a service.
func TestLimits_Headers(t *testing.T) {
	each(t, func(t *testing.T, s *site, f *front) {
		for name, text := range map[string]string{
			"a long header": "GET /v1/docs HTTP/1.1\r\nHost: " + apiHost + "\r\nX: " +
				strings.Repeat("x", 64<<10) + "\r\n\r\n",
			"many headers": "GET /v1/docs HTTP/1.1\r\nHost: " + apiHost + "\r\n" +
				strings.Repeat("X-Another: "+strings.Repeat("x", 100)+"\r\n", 600) + "\r\n",
			"a long path": "GET /" + strings.Repeat("x", 64<<10) + " HTTP/1.1\r\nHost: " + apiHost + "\r\n\r\n",
		} {
			connection, err := f.raw(t, apiHost)
			must(t, err)
			for _, answer := range harness.SendRaw(connection, text) {
				if answer.StatusCode != http.StatusBadRequest && answer.StatusCode != http.StatusRequestURITooLong &&
					answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
					t.Errorf("%s: %d", name, answer.StatusCode)
				}
			}
		}
	})
}
