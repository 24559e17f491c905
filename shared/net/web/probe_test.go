package web

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestAskReady_AcceptsOnlyStatus200(t *testing.T) {
	t.Parallel()
	for code, ready := range map[int]bool{200: true, 204: false, 302: false, 404: false, 503: false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/readyz" {
				t.Errorf("requested %s", r.URL.Path)
			}
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(code)
		}))
		_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
		for _, listen := range []string{"127.0.0.1:" + port, "0.0.0.0:" + port, ":" + port} {
			if err := AskReady(t.Context(), listen); (err == nil) != ready {
				t.Errorf("%d at %s: %v", code, listen, err)
			}
		}
		server.Close()
	}
}

func TestAwaitReady_AsksUntilReady(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	address := server.Listener.Addr().String()
	if err := AwaitReady(t.Context(), address, 0); err == nil || asked.Load() != 1 {
		t.Errorf("without a wait: asked %d times, %v", asked.Load(), err)
	}
	if err := AwaitReady(t.Context(), address, time.Minute); err != nil || asked.Load() != 3 {
		t.Errorf("asked %d times, %v", asked.Load(), err)
	}
	asked.Store(-1000)
	if err := AwaitReady(t.Context(), address, 2*probeInterval); err == nil {
		t.Error("no error when the wait is over")
	}
}

func TestAskReady_ReportsUnreachableServer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String()
	_ = listener.Close()
	if err := AskReady(t.Context(), address); err == nil ||
		!strings.Contains(err.Error(), "no response from "+address) {
		t.Error(err)
	}
	if err := AskReady(t.Context(), "no address"); err == nil {
		t.Error("no error for an invalid address")
	}
}
