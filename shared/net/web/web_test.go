package web

import (
	"bytes"
	"context"
	"encoding/json"
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

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

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

// fetch requests a page. It returns its content, and whether the response closes the connection.
func fetch(t *testing.T, address string) (body string, closes bool) {
	t.Helper()
	response, err := http.Get("http://" + address)
	must(t, err)
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	must(t, err)
	return string(content), response.Close
}

func TestServe_FinishesRequestsInFlight(t *testing.T) {
	entered := make(chan struct{})
	address, stop, served := serving(t, Server{}, func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		for accepts(r.Host) { // until the shutdown has begun
		}
		_, _ = io.WriteString(w, "done")
	})
	go func() {
		<-entered
		stop()
	}()
	if body, _ := fetch(t, address); body != "done" {
		t.Errorf("request in flight: %s", body)
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
		connection := dial(t, at)
		_, _ = io.WriteString(connection, first+second)
		_, _ = io.ReadAll(connection) // until the server has closed the connection
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
	if body, closes := fetch(t, address); body != "false" || closes {
		t.Errorf("before: leaving %s, closing %t", body, closes)
	}
	stop()
	await.True(t, "a response during the notice closes its connection", func() bool {
		body, closes := fetch(t, address)
		return body == "true" && closes
	})
	close(noticeOver)
	must(t, <-served)
	if accepts(address) {
		t.Error("a connection is accepted after the notice")
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

func TestJSON_DoesNotEscapeHTML(t *testing.T) {
	value := map[string]string{"name": "<A&B>", "line": "a\nb\u2028\"\\"}
	const want = `{"line":"a\nb\u2028\"\\","name":"<A&B>"}`
	content, err := EncodeJSON(value)
	if err != nil || string(content) != want {
		t.Errorf("%s, %v", content, err)
	}
	recorder := httptest.NewRecorder()
	JSON(recorder, 200, value)
	if got := recorder.Body.String(); got != want+"\n" {
		t.Errorf("%s", got)
	}
	var read map[string]string
	if err := json.Unmarshal(content, &read); err != nil || read["name"] != value["name"] ||
		read["line"] != value["line"] {
		t.Errorf("%v, %v", read, err)
	}
	if _, err := EncodeJSON(func() {}); err == nil {
		t.Error("EncodeJSON accepted a function")
	}
}

// lines parses a log with one JSON object per line.
func lines(t *testing.T, log string) (all []map[string]any) {
	t.Helper()
	for text := range strings.Lines(log) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("not JSON: %s", text)
		}
		if strings.Count(text, `"grant_id"`) > 1 || strings.Count(text, `"request_id"`) > 1 {
			t.Errorf("duplicate id: %s", text)
		}
		all = append(all, line)
	}
	return all
}

func TestNewLogger_LinesHaveRequestIDs(t *testing.T) {
	var out bytes.Buffer
	log := NewLogger(&out, slog.LevelInfo)
	grant, other := uuid.New(), uuid.New()
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1, 2}, SpanID: trace.SpanID{3}})
	handler := Observe(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		log.WarnContext(r.Context(), "before")
		RecordGrant(r.Context(), uuid.Nil) // an invalid token has no grant
		RecordGrant(r.Context(), grant)
		log.With("part", 1).WarnContext(context.WithoutCancel(r.Context()), "after")
		log.WarnContext(r.Context(), "of another", "grant_id", other)
	}), log, status(500))
	request := httptest.NewRequest("GET", "/", nil)
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request.WithContext(trace.ContextWithSpanContext(request.Context(), span)))
	log.Warn("of no request")

	id := recorder.Header().Get(RequestIDHeader)
	all := lines(t, out.String())
	for i, want := range []struct{ message, grant any }{
		{"before", nil},
		{"after", grant.String()},
		{"of another", other.String()},
		{"request", grant.String()},
	} {
		line := all[i]
		if line["msg"] != want.message || line["grant_id"] != want.grant || line["request_id"] != id ||
			line["trace_id"] != span.TraceID().String() {
			t.Errorf("line %d: %v", i, line)
		}
	}
	if last := all[4]; last["request_id"] != nil || last["grant_id"] != nil || last["trace_id"] != nil {
		t.Errorf("line outside a request has ids: %v", last)
	}
}

// F18: the access log names the credential and the address of a request, and no secret.
func TestObserve_AccessLogNamesCaller(t *testing.T) {
	var out bytes.Buffer
	log := NewLogger(&out, slog.LevelInfo)
	c := Caller{Credential: uuid.New(), Workspace: uuid.New(), User: uuid.New(), Client: uuid.New()}
	proxies, err := ParseProxies("192.0.2.1")
	must(t, err)
	handler := Observe(RecordAddress(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		RecordCaller(r.Context(), Caller{User: uuid.New(), Client: c.Client})
		RecordCaller(r.Context(), Caller{Credential: c.Credential, Workspace: c.Workspace, User: c.User})
	}), proxies), log, status(500))
	request := httptest.NewRequest("GET", "/?token=secret", nil)
	request.Header.Set("X-Forwarded-For", "198.51.100.7")
	request.Header.Set("Authorization", "Bearer secret")
	handler.ServeHTTP(httptest.NewRecorder(), request)
	Observe(status(200), log, status(500)).ServeHTTP(httptest.NewRecorder(), request)
	all := lines(t, out.String())
	for name, want := range map[string]any{
		"credential_id":  c.Credential.String(),
		"workspace_id":   c.Workspace.String(),
		"user_id":        c.User.String(),
		"client_id":      c.Client.String(),
		"remote_address": "198.51.100.7",
	} {
		if all[0][name] != want {
			t.Errorf("%s is %v, want %v", name, all[0][name], want)
		}
		if _, named := all[1][name]; named {
			t.Errorf("%s is logged although it is unknown", name)
		}
	}
	if strings.Contains(out.String(), "secret") {
		t.Error("the log contains a secret")
	}
}

func TestSetRateLimited_WritesEachLimit(t *testing.T) {
	h := http.Header{}
	signIn := RateLimit{Name: "sign-in", Quota: 10, Window: 15 * time.Minute, Remaining: -3}
	signIn.Reset = 89*time.Second + time.Millisecond
	inFlight := RateLimit{Name: "in-flight", Quota: 64, Unit: UnitConcurrentRequests, Remaining: 7}
	SetRateLimited(h, 1500*time.Millisecond, signIn, inFlight)
	for name, want := range map[string]string{
		"RateLimit-Policy": `"sign-in";q=10;w=900, "in-flight";q=64;qu="concurrent-requests"`,
		"RateLimit":        `"sign-in";r=0;t=90, "in-flight";r=7`,
		"Retry-After":      "2",
	} {
		if got := h.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestSetRateLimits_EscapesNames(t *testing.T) {
	h := http.Header{}
	SetRateLimits(h)
	if len(h) != 0 {
		t.Errorf("headers %v without a limit", h)
	}
	SetRateLimits(h, RateLimit{Name: "a\"b\\c\nd\u00e9", Quota: 1, Unit: UnitRequests})
	if got, want := h.Get("RateLimit-Policy"), `"a\"b\\cd";q=1`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestSetRetryAfter_IsAtLeastOneSecond(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		0:                        "1",
		-time.Second:             "1",
		time.Millisecond:         "1",
		time.Second:              "1",
		61001 * time.Millisecond: "62",
	} {
		h := http.Header{}
		SetRetryAfter(h, wait)
		if got := h.Get("Retry-After"); got != want {
			t.Errorf("%v: %q, want %q", wait, got, want)
		}
	}
}
