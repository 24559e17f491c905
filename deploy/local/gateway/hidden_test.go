package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/net/web"
)

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

// Each request hides a second one that only one interpretation of its length sees. e2e/gateway sends more of them to
// Caddy and nginx.
func TestGateway_PassesNoHiddenRequest(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.URL.Path)
	}))
	t.Cleanup(service.Close)
	take := func() []string {
		mu.Lock()
		defer mu.Unlock()
		defer func() { seen = nil }()
		return seen
	}
	to := []string{address(service.URL)}
	base := served(t, New(to, to, nil, slog.New(slog.DiscardHandler)))
	const hidden = "GET /hidden HTTP/1.1\r\nHost: localhost\r\n\r\n"
	const last = "GET /last HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" // ends the connection
	const chunked = "0\r\n\r\n" + hidden
	long := strings.Repeat("x", 20<<10)
	length := fmt.Sprintf("Content-Length: %d\r\n", len(chunked))
	for name, rest := range map[string]string{
		"two lengths":           "Content-Length: 0\r\n" + length + "\r\n" + hidden,
		"length signed":         "Content-Length: +0\r\n\r\n" + hidden,
		"length hexadecimal":    "Content-Length: 0x0\r\n\r\n" + hidden,
		"length and chunked":    length + "Transfer-Encoding: chunked\r\n\r\n" + chunked,
		"chunked and length":    "Transfer-Encoding: chunked\r\n" + length + "\r\n" + chunked,
		"short and chunked":     "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked,
		"xchunked":              length + "Transfer-Encoding: xchunked\r\n\r\n" + chunked,
		"chunked, identity":     length + "Transfer-Encoding: chunked, identity\r\n\r\n" + chunked,
		"chunked, spaced name":  length + "Transfer-Encoding : chunked\r\n\r\n" + chunked,
		"chunked, vertical tab": length + "Transfer-Encoding: \vchunked\r\n\r\n" + chunked,
		"chunked, folded":       length + "Transfer-Encoding:\r\n chunked\r\n\r\n" + chunked,
		"bare carriage return":  "X: y\rTransfer-Encoding: chunked\r\n" + length + "\r\n" + chunked,
		"bare line feed":        "X: y\nTransfer-Encoding: chunked\r\n" + length + "\r\n" + chunked,
		"length by Connection":  length + "Connection: Content-Length\r\n\r\n" + chunked,
		"chunk signed":          "Transfer-Encoding: chunked\r\n\r\n+0\r\n\r\n" + hidden,
		"chunk hexadecimal":     "Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n" + hidden,
		"chunk with line feeds": "Transfer-Encoding: chunked\r\n\r\n2\nxx\n0\n\n" + hidden,
		"chunk of a wrong size": "Transfer-Encoding: chunked\r\n\r\n1\r\nAA\r\n" + chunked,
		"chunk with extension":  "Transfer-Encoding: chunked\r\n\r\n0;x=\"\r\n\r\n" + hidden,
		"chunk, long extension": "Transfer-Encoding: chunked\r\n\r\n0;" + long + "\r\n\r\n" + hidden,
	} {
		for _, path := range []string{"/token", "/v1/programmes/programmes"} {
			all(t, base, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\n"+rest+last)
			if arrived := take(); slices.Contains(arrived, "/hidden") {
				t.Errorf("%s: the hidden request arrived: %v", name, arrived)
			}
		}
	}
	all(t, base, hidden+last) // no request hides it
	if arrived := take(); !slices.Contains(arrived, "/hidden") {
		t.Errorf("the test sees only %v", arrived)
	}
}

// served serves a handler as the local stack does, and returns the address.
func served(t *testing.T, handler http.Handler) string {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	listening, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- web.Serve(ctx, web.Server{Address: "127.0.0.1:0"}, handler, slog.New(slog.DiscardHandler),
			func(a net.Addr) { listening <- a.String() })
	}()
	t.Cleanup(func() {
		stop()
		must(t, <-ended)
	})
	return <-listening
}

// all sends bytes to a server, and waits until it closes the connection.
func all(t *testing.T, address, text string) {
	t.Helper()
	connection, err := net.Dial("tcp", address)
	must(t, err)
	defer func() { _ = connection.Close() }()
	must(t, connection.SetDeadline(time.Now().Add(await.Long)))
	_, _ = io.WriteString(connection, text) // the server may have closed it
	if _, err := io.Copy(io.Discard, connection); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%.200q: the connection stays open", text)
	}
}
