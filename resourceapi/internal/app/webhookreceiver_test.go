package app

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/devkit/await"
)

// A receiver is a webhook endpoint on this machine.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	received []received
	answer   func(received) int // the status; nil for 204
}

// received is one request to a receiver.
type received struct {
	Path   string
	ID     string
	Header http.Header
	Body   string
	Event  struct {
		Type        string
		Timestamp   time.Time
		Data        json.RawMessage
		WorkspaceID string
		Sequence    int64
	}
}

func newReceiver(t *testing.T, answer func(received) int) *receiver {
	t.Helper()
	r := &receiver{answer: answer}
	r.Server = httptest.NewTLSServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	content, _ := io.ReadAll(request.Body)
	got := received{Path: request.URL.Path, Header: request.Header, Body: string(content)}
	got.ID = request.Header.Get("webhook-id")
	_ = json.Unmarshal(content, &got.Event)
	r.mu.Lock()
	r.received = append(r.received, got)
	r.mu.Unlock()
	status := http.StatusNoContent
	if r.answer != nil {
		status = r.answer(got)
	}
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "600")
	}
	if status >= 300 && status < 400 {
		w.Header().Set("Location", r.URL+"/elsewhere")
	}
	w.WriteHeader(status)
}

func (r *receiver) all() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.received)
}

// types returns the types of what was received.
func (r *receiver) types() []string {
	out := []string{}
	for _, one := range r.all() {
		out = append(out, one.Event.Type)
	}
	return out
}

// trustsReceivers makes a service send webhooks to receivers, which all have one certificate.
func trustsReceivers(c *Config) {
	receiver := httptest.NewTLSServer(nil)
	defer receiver.Close()
	c.WebhookCA = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: receiver.Certificate().Raw}))
}

// retryNow makes the endpoints due now.
func (s *service) retryNow() { s.Exec("update account.webhooks set next_try_at = now() where {mine}") }

// failures reports whether an endpoint has this number of failures.
func (s *service) failures(n int) func() bool {
	return func() bool {
		return s.rows("account.webhooks", "failures = $1", n) == 1
	}
}

func within(t *testing.T, what string, condition func() bool) {
	t.Helper()
	await.True(t, what, condition)
}
