package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/net/web"
)

var must = testkit.Must

// echo starts a service that returns its name and the request, and response headers by name and value.
func echo(t *testing.T, name string, headers ...string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proxies, _ := web.ParseProxies(SourceAddress)
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set(web.RequestIDHeader, r.Header.Get(web.RequestIDHeader))
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		web.JSON(w, http.StatusOK, map[string]any{
			"name": name, "host": r.Host, "uri": r.RequestURI, "header": r.Header, "from": host,
			"caller": proxies.ClientAddress(r).String(), "body": string(body),
		})
	}))
	t.Cleanup(server.Close)
	return address(server.URL)
}

// address returns the host and port of a server's URL.
func address(url string) string { return strings.TrimPrefix(url, "http://") }

func serve(t *testing.T, authservers, resourceapis []string) string {
	t.Helper()
	server := httptest.NewServer(New(authservers, resourceapis, nil, slog.New(slog.DiscardHandler)))
	t.Cleanup(server.Close)
	return server.URL
}

type echoed struct {
	Name, Host, URI, From, Caller, Body string
	Header                              http.Header
}

func ask(t *testing.T, request *http.Request) (echoed, *http.Response) {
	t.Helper()
	response, err := http.DefaultTransport.RoundTrip(request)
	must(t, err)
	defer func() { _ = response.Body.Close() }()
	var out echoed
	must(t, json.NewDecoder(response.Body).Decode(&out))
	return out, response
}

func get(t *testing.T, address string) *http.Request {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	must(t, err)
	return request
}

func TestGateway_RoutesPathsByContract(t *testing.T) {
	base := serve(t, []string{echo(t, "account")}, []string{echo(t, "resource")})
	for want, paths := range map[string][]string{
		"account": {
			"/v1/account/oauth/token", "/v1/account", "/.well-known/oauth-authorization-server",
			"/.well-known/oauth-authorization-server/v1", "/.well-known/openid-configuration",
			"/.well-known/openid-configuration/mcp", "/mcp/.well-known/oauth-authorization-server",
			"/mcp/.well-known/openid-configuration", "/authorize", "/token", "/register", "/.well-known/jwks.json",
		},
		"resource": {
			"/.well-known/jwks.json/x", "/", "/v1/programmes/programmes", "/v1/accounts", "/v1/engage/public/forms/x",
			"/mcp", "/mcp/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp",
			"/token/x", "/oauth/authorize", "/healthz", "/tok%65n", "/v1%2Faccount/oauth/token",
		},
	} {
		for _, path := range paths {
			if got, _ := ask(t, get(t, base+path)); got.Name != want {
				t.Errorf("%s went to %s, want %s", path, got.Name, want)
			}
		}
	}
}

func TestGateway_RemovesCallerClaims(t *testing.T) {
	base := serve(t, []string{echo(t, "account")}, []string{echo(t, "resource")})
	request := get(t, base+"/v1/programmes/programmes")
	for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port",
		"X-Forwarded-Prefix", "X-Real-Ip", "Forwarded"} {
		request.Header.Set(name, "203.0.113.9")
	}
	// A proxy that removes the headers of the connection last would remove its own ones.
	request.Header.Set("Connection", "X-Forwarded-For, X-Forwarded-Host, X-Forwarded-Proto, X-Request-Id")
	got, response := ask(t, request)
	oneID(t, got, response)
	if got.Caller != "127.0.0.1" || got.From != SourceAddress {
		t.Errorf("caller %s by way of %s", got.Caller, got.From)
	}
	for name, values := range got.Header {
		if strings.Contains(strings.Join(values, " "), "203.0.113.9") {
			t.Errorf("%s: %v", name, values)
		}
	}
	if want := address(base); got.Host != want || got.Header.Get("X-Forwarded-Host") != want {
		t.Errorf("host %s, X-Forwarded-Host %s, want %s", got.Host, got.Header.Get("X-Forwarded-Host"), want)
	}
	if got.Header.Get("X-Forwarded-For") != "127.0.0.1" || got.Header.Get("X-Forwarded-Proto") != "http" {
		t.Errorf("the gateway's own headers are lost: %v", got.Header)
	}
}

func TestGateway_PassesPathAndQueryUnchanged(t *testing.T) {
	base := serve(t, []string{echo(t, "account")}, []string{echo(t, "resource")})
	host := address(base)
	for _, uri := range []string{"/v1/a%2Fb/?q=a+b&q=%zz;x=1&limit=", "/v1/x?a=1;b=2", "/v1/%7Ehome?%20"} {
		_, body := raw(t, base, "GET "+uri+" HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
		var got echoed
		must(t, json.Unmarshal(body, &got))
		if got.URI != uri {
			t.Errorf("%s arrived as %s", uri, got.URI)
		}
	}
}

// raw sends bytes to the gateway and returns the response to them.
func raw(t *testing.T, base, request string) (status int, body []byte) {
	t.Helper()
	connection, err := net.Dial("tcp", address(base))
	must(t, err)
	defer func() { _ = connection.Close() }()
	_, _ = io.WriteString(connection, request)
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	must(t, err)
	body, err = io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, body
}

func TestGateway_KeepsOneRequestID(t *testing.T) {
	base := serve(t, []string{echo(t, "account")}, []string{echo(t, "resource")})
	got, response := ask(t, get(t, base+"/v1/programmes/programmes"))
	oneID(t, got, response)

	// A client that waits for 100 Continue gets it once.
	patient := get(t, base+"/v1/programmes/programmes")
	patient.Method, patient.Body, patient.ContentLength = http.MethodPost, io.NopCloser(strings.NewReader("body")), 4
	patient.Header.Set("Expect", "100-continue")
	leaves := 0
	patient = patient.WithContext(
		httptrace.WithClientTrace(patient.Context(), &httptrace.ClientTrace{Got100Continue: func() { leaves++ }}))
	got, response = ask(t, patient)
	if oneID(t, got, response); leaves != 1 {
		t.Errorf("100 Continue %d times", leaves)
	}
}

func oneID(t *testing.T, got echoed, response *http.Response) {
	t.Helper()
	ids := response.Header.Values(web.RequestIDHeader)
	if len(ids) != 1 || ids[0] == "" || got.Header.Get(web.RequestIDHeader) != ids[0] {
		t.Errorf("the caller got %v, the service %v", ids, got.Header.Values(web.RequestIDHeader))
	}
}

func TestGateway_AlternatesProcesses(t *testing.T) {
	base := serve(t, []string{echo(t, "one"), echo(t, "two")}, []string{echo(t, "resource")})
	count := map[string]int{}
	for range 10 {
		got, _ := ask(t, get(t, base+"/token"))
		count[got.Name]++
	}
	if count["one"] != 5 || count["two"] != 5 {
		t.Errorf("turns: %v", count)
	}
}

func TestGateway_DownServiceIs503InRouteShape(t *testing.T) {
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	base := serve(t, []string{address(down.URL)}, []string{address(down.URL)})
	for path, want := range map[string]string{
		"/v1/programmes/programmes": `{"error":{"code":"UNAVAILABLE",`,
		"/mcp":                      `{"error":{"code":"UNAVAILABLE",`,
		"/v1/account/oauth/token":   `{"error":"temporarily_unavailable","error_description":`,
	} {
		response, err := http.Get(base + path)
		must(t, err)
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusServiceUnavailable || !strings.HasPrefix(string(body), want) ||
			response.Header.Get("Retry-After") == "" || response.Header.Get(web.RequestIDHeader) == "" {
			t.Errorf("%s: %d %v %s", path, response.StatusCode, response.Header, body)
		}
	}
}

func TestGateway_EndlessBodyIs413(t *testing.T) {
	base := serve(t, []string{echo(t, "account")}, []string{echo(t, "resource")})
	body := io.LimitReader(endless{}, maxBody+1)
	response, err := http.Post(base+"/v1/programmes/programmes/imports", "text/csv", body)
	must(t, err)
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d", response.StatusCode)
	}
}

// TestGateway_UnreadableBodyIs400 checks that a malformed body is the caller's mistake: a 503 would make the caller
// retry.
func TestGateway_UnreadableBodyIs400(t *testing.T) {
	base := serve(t, []string{echo(t, "account")}, []string{echo(t, "resource")})
	for path, code := range map[string]string{
		"/v1/account/oauth/token":   "invalid_request",
		"/v1/programmes/programmes": "VALIDATION_ERROR",
	} {
		for _, chunks := range []string{"1\r\nAA\r\n0\r\n\r\n", "0x0\r\n\r\n", "+0\r\n\r\n"} {
			status, body := raw(t, base,
				"POST "+path+" HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"+chunks)
			if status != http.StatusBadRequest || !strings.Contains(string(body), code) {
				t.Errorf("%s %q: %d %s", path, chunks, status, body)
			}
		}
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// Whatever host a request names, the gateway connects to its services alone.
func TestGateway_ConnectsOnlyToServices(t *testing.T) {
	elsewhere := httptest.NewUnstartedServer(http.NotFoundHandler())
	elsewhere.Config.ConnState = func(net.Conn, http.ConnState) { t.Error("a connection to another host") }
	elsewhere.Start()
	t.Cleanup(elsewhere.Close)
	base, other := serve(t, []string{echo(t, "account")}, []string{echo(t, "resource")}), address(elsewhere.URL)
	for _, request := range []string{
		"GET http://" + other + "/v1/programmes/programmes", "GET http://" + other + "/token",
		"GET https://" + other + "/token", "GET //" + other + "/token", "CONNECT " + other,
		"CONNECT http://" + other + "/token",
	} {
		for _, host := range []string{other, address(base)} {
			status, body := raw(t, base, request+" HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
			if ours := status == http.StatusOK && strings.Contains(string(body), `"from":"`+SourceAddress); !ours &&
				status/100 != 4 {
				t.Errorf("%s to %s: %d %s", request, host, status, body)
			}
		}
	}
}

func TestGateway_CallerDisconnectEndsRequest(t *testing.T) {
	entered, left := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(left)
	}))
	defer slow.Close()
	base := serve(t, []string{address(slow.URL)}, []string{address(slow.URL)})
	ctx, leave := context.WithCancel(t.Context())
	request := get(t, base+"/v1/programmes/programmes").WithContext(ctx)
	go func() { <-entered; leave() }()
	if response, err := http.DefaultTransport.RoundTrip(request); err == nil {
		_ = response.Body.Close()
		t.Error("got a response although the caller had disconnected")
	}
	<-left
}

// wantPosted posts a body, which the first attempt must not consume, and checks which process gets it.
func wantPosted(t *testing.T, base, name string) {
	t.Helper()
	request := get(t, base+"/token")
	request.Method, request.Body, request.ContentLength = http.MethodPost, io.NopCloser(strings.NewReader("a body")), 6
	if got, _ := ask(t, request); got.Name != name || got.Body != "a body" {
		t.Errorf("%q got %q, want that %s gets the body", got.Name, got.Body, name)
	}
}

func TestPool_SkipsProcessThatIsDown(t *testing.T) {
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	base := serve(t, []string{address(down.URL), echo(t, "two")}, []string{address(down.URL)})
	for range 6 {
		wantPosted(t, base, "two")
	}
}

func TestPool_SkipsProcessThatIsLeaving(t *testing.T) {
	two := echo(t, "two")
	base := serve(t, []string{echo(t, "one", "Connection", "close"), two}, []string{two})
	wantPosted(t, base, "one")
	for range 6 {
		wantPosted(t, base, "two")
	}
}

// A process closes its connections after its notice, and a POST on one of them could not be repeated. The shortest
// notice of the tests is 2 s.
func TestPool_ClosesIdleConnections(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{}, 1)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	to := []string{address(server.URL)}
	response, err := http.Get(serve(t, to, to) + "/token")
	must(t, err)
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	if shortestNotice := 2 * time.Second; idleTimeout >= shortestNotice {
		t.Errorf("the gateway keeps an idle connection for %s", idleTimeout)
	}
	select {
	case <-closed:
	case <-time.After(await.Long):
		t.Error("the gateway keeps an idle connection")
	}
}
