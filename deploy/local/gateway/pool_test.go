package gateway

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/devkit/await"
)

// post sends a request with a body, which the first attempt must not consume.
func post(t *testing.T, base string) string {
	t.Helper()
	response, err := http.Post(base+"/token", "text/plain", strings.NewReader("a body"))
	must(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%d %s %v", response.StatusCode, body, err)
	}
	return string(body)
}

func named(t *testing.T, name string, leaving bool) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if leaving {
			w.Header().Set("Connection", "close")
		}
		_, _ = io.WriteString(w, name+": "+string(body))
	}))
	t.Cleanup(server.Close)
	return address(server.URL)
}

func TestPool_SkipsProcessThatIsDown(t *testing.T) {
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	base := serve(t, []string{address(down.URL), named(t, "two", false)}, []string{address(down.URL)})
	for range 6 {
		if got := post(t, base); got != "two: a body" {
			t.Errorf("got %q", got)
		}
	}
}

func TestPool_SkipsProcessThatIsLeaving(t *testing.T) {
	two := named(t, "two", false)
	base := serve(t, []string{named(t, "one", true), two}, []string{two})
	if got := post(t, base); got != "one: a body" {
		t.Errorf("got %q", got)
	}
	for range 6 {
		if got := post(t, base); got != "two: a body" {
			t.Errorf("got %q", got)
		}
	}
}

// A process closes its connections after its notice, and a POST on one of them could not be repeated. The shortest
// notice of the tests is 2 s.
func TestPool_ClosesIdleConnections(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{}, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	to := []string{address(server.URL)}
	post(t, serve(t, to, to))
	if shortestNotice := 2 * time.Second; idleTimeout >= shortestNotice {
		t.Errorf("the gateway keeps an idle connection for %s", idleTimeout)
	}
	select {
	case <-closed:
	case <-time.After(await.Long):
		t.Error("the gateway keeps an idle connection")
	}
}
