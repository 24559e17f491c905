package harness

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A Receiver is a webhook endpoint on this machine with TLS.
type Receiver struct {
	URL string

	server *httptest.Server
	mu     sync.Mutex
	got    []Received
	status int
	wait   chan struct{}
}

// Received is one request to a Receiver.
type Received struct {
	Path   string
	Header http.Header
	Body   []byte
}

// NewReceiver starts a receiver that responds to every request with a success status.
func NewReceiver(t testing.TB) *Receiver {
	t.Helper()
	r := &Receiver{status: http.StatusNoContent}
	r.server = httptest.NewTLSServer(r)
	r.URL = r.server.URL
	t.Cleanup(r.server.Close)
	t.Cleanup(r.Resume)
	return r
}

// Settings returns the settings of a development deployment that delivers webhooks to this receiver.
func (r *Receiver) Settings() map[string]string {
	content := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.server.Certificate().Raw})
	return map[string]string{"ALMONER_WEBHOOK_CA": string(content)}
}

// Answer sets the status of the following responses.
func (r *Receiver) Answer(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

// Pause makes the receiver accept requests without responding until Resume is called.
func (r *Receiver) Pause() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wait = make(chan struct{})
}

// Resume ends a Pause.
func (r *Receiver) Resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wait != nil {
		close(r.wait)
		r.wait = nil
	}
}

// All returns what was received, in order.
func (r *Receiver) All() []Received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

// At returns what was received at a path, in order.
func (r *Receiver) At(path string) []Received {
	return slices.DeleteFunc(r.All(), func(one Received) bool { return one.Path != path })
}

func (r *Receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, _ := io.ReadAll(request.Body)
	r.mu.Lock()
	r.got = append(r.got, Received{strings.Clone(request.URL.Path), request.Header.Clone(), body})
	status, wait := r.status, r.wait
	r.mu.Unlock()
	if wait != nil {
		<-wait
	}
	w.WriteHeader(status)
}
