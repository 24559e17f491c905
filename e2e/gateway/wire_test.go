package gateway

import (
	"bufio"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

func TestTLS_RequiresVersion12(t *testing.T) {
	each(t, func(t *testing.T, s *site, f *front) {
		for version, accepted := range map[uint16]bool{
			tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true,
		} {
			for _, host := range []string{apiHost, appHost} {
				plain, err := f.dial("")(t.Context(), "tcp", fmt.Sprint(host, ":", f.ports.https))
				must(t, err)
				_ = plain.SetDeadline(time.Now().Add(await.Long))
				connection := tls.Client(plain,
					&tls.Config{RootCAs: f.trust, ServerName: host, MinVersion: version, MaxVersion: version})
				if err := connection.HandshakeContext(t.Context()); (err == nil) != accepted {
					t.Errorf("%s at %s: %v", tls.VersionName(version), host, err)
				}
				_ = plain.Close()
			}
		}
	})
}

// Over plain HTTP the API rejects requests and pages redirect to https.
func TestTLS_PlainHTTPServesNothing(t *testing.T) {
	each(t, func(t *testing.T, s *site, f *front) {
		transport := f.transport(t)
		for host, want := range map[string]int{
			apiHost: http.StatusForbidden, appHost: http.StatusPermanentRedirect,
			"evil.example": http.StatusMisdirectedRequest,
		} {
			address := fmt.Sprint("http://", host, ":", f.ports.http, "/login?return=/x")
			response, _ := ask(t, transport, http.MethodGet, address, "", nil)
			strict := response.Header.Get("Strict-Transport-Security")
			if response.StatusCode != want || strict != "" {
				t.Errorf("%s: %d, Strict-Transport-Security %q", host, response.StatusCode, strict)
			}
			to := response.Header.Get("Location")
			if host == appHost && to != "https://"+appHost+"/login?return=/x" || host != appHost && to != "" {
				t.Errorf("%s: redirected to %q", host, to)
			}
		}
	})
}

// TestSmuggling_NoHiddenRequestIsServed hides a request in others with an ambiguous end. It was served if a service
// has logged its path.
func TestSmuggling_NoHiddenRequestIsServed(t *testing.T) {
	each(t, func(t *testing.T, s *site, f *front) {
		mark := strings.ToLower(rand.Text())
		var group sync.WaitGroup
		turns := make(chan struct{}, 48) // most wait for a response that does not come
		for at, target := range [][2]string{
			{apiHost, harness.TokenPath},
			{apiHost, harness.ListPath},
			{appHost, "/login"},
		} {
			host, path := target[0], target[1]
			hidden := func(name string) string {
				return fmt.Sprintf("/v1/account/smuggled-%s-%d-%s", mark, at,
					strings.NewReplacer(" ", "-", ",", "").Replace(name))
			}
			for name := range harness.SmugglingRequests(path, host, "") {
				text := harness.SmugglingRequests(path, host, hidden(name))[name] // with the correct length
				group.Go(func() {
					turns <- struct{}{}
					defer func() { <-turns }()
					for _, response := range f.sendRaw(t, host, text) {
						status := response.StatusCode
						if status >= http.StatusInternalServerError && status != http.StatusNotImplemented &&
							status != http.StatusHTTPVersionNotSupported &&
							// Caddy treats a malformed body as a service that does not respond.
							!(f.name == "caddy" && strings.HasPrefix(name, "chunk ")) {
							t.Errorf("%s at %s%s: %d", name, host, path, status)
						}
					}
				})
			}
		}
		group.Wait()
		// A second request on the same connection that is not hidden is logged, so a served request would be
		// found.
		plain := "/v1/account/plain-" + mark
		f.sendRaw(t, apiHost, "GET /v1/account/oauth/jwks HTTP/1.1\r\nHost: "+apiHost+"\r\n\r\n"+
			"GET "+plain+" HTTP/1.1\r\nHost: "+apiHost+"\r\nConnection: close\r\n\r\n")
		s.wantServed(t, map[string]string{plain: account})
		for service, log := range s.served(t) {
			for line := range strings.Lines(log) {
				if strings.Contains(line, `"path":"/v1/account/smuggled-`+mark) {
					t.Errorf("a hidden request reached %s: %s", service, harness.Redact(line))
				}
			}
		}
		// Later requests on the gateway's connections to the services get their own responses.
		p := s.product(t, f.transport(t))
		for range 20 {
			p.API().Get(t, "/v1/account/oauth/jwks").Wants(t, http.StatusOK)
			p.API().Get(t, harness.ListPath).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
		}
	})
}

// A connection that sends its headers too slowly is closed.
func TestLimits_SlowHeadersCloseConnection(t *testing.T) {
	each(t, func(t *testing.T, s *site, f *front) {
		connection, err := f.raw(t, apiHost)
		must(t, err)
		defer func() { _ = connection.Close() }()
		const closeWithin = await.Long // the gateway's limit is 5 s
		_ = connection.SetDeadline(time.Now().Add(closeWithin))
		_, err = io.WriteString(connection, "GET /v1/docs HTTP/1.1\r\nHost: "+apiHost+"\r\n")
		must(t, err)
		go func() {
			for at := 0; t.Context().Err() == nil; at++ {
				time.Sleep(500 * time.Millisecond)
				_, _ = fmt.Fprintf(connection, "X-%d: y\r\n", at)
			}
		}()
		response, err := http.ReadResponse(bufio.NewReader(connection), nil)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			t.Errorf("the connection is still open after %s", closeWithin)
		case err == nil && response.StatusCode != http.StatusRequestTimeout &&
			response.StatusCode != http.StatusBadRequest:
			t.Errorf("status %d", response.StatusCode)
		}
	})
}
