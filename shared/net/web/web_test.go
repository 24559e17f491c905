package web

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/devkit/await"
)

func status(code int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
}

func TestMethods_SetsAllow(t *testing.T) {
	handler := Methods(map[string]http.Handler{"GET": status(200), "POST": status(201)}, status(405))
	for method, want := range map[string]int{"GET": 200, "HEAD": 200, "POST": 201, "DELETE": 405, "OPTIONS": 405} {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequest(method, "/", nil))
		if recorder.Code != want {
			t.Errorf("%s: %d", method, recorder.Code)
		}
		if allow := recorder.Header().Get("Allow"); want == 405 && allow != "GET, HEAD, POST" {
			t.Errorf("Allow: %q", allow)
		}
	}
}

func TestObserve_HandlesPanicWithoutLoggingQuery(t *testing.T) {
	var log strings.Builder
	handler := Observe(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") }),
		NewLogger(&log, slog.LevelInfo), status(500))
	request := httptest.NewRequest("GET", "/callback?code=hush", nil)
	request.Header.Set(RequestIDHeader, "not\na-uuid")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	id := recorder.Header().Get(RequestIDHeader)
	if recorder.Code != 500 || len(id) != 36 || !strings.Contains(log.String(), id) {
		t.Errorf("%d %q %s", recorder.Code, id, log.String())
	}
	if strings.Contains(log.String(), "hush") {
		t.Error("the log contains the query")
	}
}

func TestClientAddress_TrustsOnlyNamedProxies(t *testing.T) {
	proxies, err := ParseProxies("10.0.0.0/8, 192.0.2.7")
	must(t, err)
	for _, c := range []struct{ remote, forwarded, want string }{
		{"203.0.113.5:1", "198.51.100.1", "203.0.113.5"},
		{"10.1.2.3:1", "198.51.100.1", "198.51.100.1"},
		{"10.1.2.3:1", "127.0.0.1, 198.51.100.1", "198.51.100.1"},
		{"10.1.2.3:1", "198.51.100.1, 192.0.2.7", "198.51.100.1"},
		{"10.1.2.3:1", "rubbish", "10.1.2.3"},
		{"10.1.2.3:1", "", "10.1.2.3"},
		{"[::ffff:10.1.2.3]:1", "198.51.100.1", "198.51.100.1"},
	} {
		request := httptest.NewRequest("GET", "/", nil)
		request.RemoteAddr = c.remote
		request.Header.Set("X-Forwarded-For", c.forwarded)
		if got := proxies.ClientAddress(request).String(); got != c.want {
			t.Errorf("%s via %q: %s, want %s", c.remote, c.forwarded, got, c.want)
		}
	}
	if _, err := ParseProxies("10.0.0.0/8,everyone"); err == nil {
		t.Error("an invalid range was accepted")
	}
}

func TestNetwork_IPv6CountsBySlash64(t *testing.T) {
	for address, want := range map[string]string{
		"203.0.113.5": "203.0.113.5", "::ffff:203.0.113.5": "203.0.113.5", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64",
		"2001:db8:1:2::1": "2001:db8:1:2::/64", "2001:db8:1:3::1": "2001:db8:1:3::/64", "fe80::1%eth0": "fe80::/64",
	} {
		if got := Network(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s counts as %s, want %s", address, got, want)
		}
	}
	if got := Network(netip.Addr{}); got != "invalid IP" {
		t.Errorf("the zero address counts as %s", got)
	}
}

func accepts(address string) bool {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	_ = connection.Close()
	return true
}

// serving runs Serve with a handler until stop is called. served receives its error.
func serving(t *testing.T, config Server, handler http.HandlerFunc) (address string, stop func(), served chan error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	listens, served := make(chan net.Addr, 1), make(chan error, 1)
	config.Address = "127.0.0.1:0"
	log := slog.New(slog.DiscardHandler)
	go func() { served <- Serve(ctx, config, handler, log, func(a net.Addr) { listens <- a }) }()
	return (<-listens).String(), stop, served
}

func TestServe_FinishesRequestsInFlight(t *testing.T) {
	entered := make(chan struct{})
	address, stop, served := serving(t, Server{}, func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		for accepts(r.Host) { // until the shutdown has begun
		}
		_, _ = io.WriteString(w, "done")
	})
	answer := make(chan string, 1)
	go func() {
		response, err := http.Get("http://" + address)
		if err != nil {
			answer <- err.Error()
			return
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		answer <- string(body)
	}()
	<-entered
	stop()
	if got := <-answer; got != "done" {
		t.Errorf("request in flight: %s", got)
	}
	must(t, <-served)
}

// A request with both a length and chunks is the last of its connection: a proxy may take the following bytes
// for part of it.
func TestServe_ClosesConnectionAfterChunks(t *testing.T) {
	var asked atomic.Int64
	at, stop, served := serving(t, Server{}, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	second := "GET /hidden HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	length := fmt.Sprintf("Content-Length: %d\r\n", len("0\r\n\r\n"+second))
	for first, want := range map[string]int64{
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n": 2, // two plain requests
		"POST / HTTP/1.1\r\nHost: x\r\n" + length + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n":     1,
		"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n chunked\r\n" + length + "\r\n0\r\n\r\n": 1,
	} {
		asked.Store(0)
		connection, err := net.Dial("tcp", at)
		must(t, err)
		_, _ = io.WriteString(connection, first+second)
		_ = connection.SetReadDeadline(time.Now().Add(await.Long))
		_, _ = io.ReadAll(connection) // until the server has closed the connection
		_ = connection.Close()
		if got := asked.Load(); got != want {
			t.Errorf("%q: %d requests were served, want %d", first, got, want)
		}
	}
	stop()
	must(t, <-served)
}

func TestServe_GivesNotice(t *testing.T) {
	t.Parallel()
	noticeOver := make(chan time.Time)
	config := Server{Notice: time.Hour, after: func(time.Duration) <-chan time.Time { return noticeOver }}
	address, stop, served := serving(t, config, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, Leaving(r.Context()))
	})
	url := "http://" + address
	ask := func() (body string, closes bool) {
		t.Helper()
		response, err := http.Get(url)
		must(t, err)
		content, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		return string(content), response.Close
	}
	if body, closes := ask(); body != "false" || closes {
		t.Errorf("before: leaving %s, closing %t", body, closes)
	}
	stop()
	await.True(t, "a response during the notice closes its connection", func() bool {
		body, closes := ask()
		return body == "true" && closes
	})
	close(noticeOver)
	must(t, <-served)
	if response, err := http.Get(url); err == nil {
		_ = response.Body.Close()
		t.Error("response after the notice")
	}
}

func TestParseID_AcceptsOnlyCanonicalForm(t *testing.T) {
	const canonical = "0190c5d2-7f3a-7c11-9d0e-1a2b3c4d5e6f"
	if _, err := ParseID(canonical); err != nil {
		t.Fatalf("canonical form refused: %v", err)
	}
	for _, other := range []string{
		"", "not-a-uuid", "{" + canonical + "}", "urn:uuid:" + canonical,
		"0190c5d27f3a7c119d0e1a2b3c4d5e6f", canonical + " ", "g190c5d2-7f3a-7c11-9d0e-1a2b3c4d5e6f",
	} {
		if _, err := ParseID(other); err == nil {
			t.Errorf("ParseID(%q) accepted", other)
		}
	}
}
