package app

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
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

// newWebhookService runs the service with its worker. It trusts the receiver, if there is one.
func newWebhookService(t *testing.T, r *receiver) *service {
	t.Helper()
	s := &service{
		Fixture: postgrestest.NewWithJobs(t, postgres.MigrateJobs),
		t:       t,
		key:     newKey(t, "key-1"),
		log:     &lockedBuffer{},
	}
	config := configFor(s.Database.Resourceapi, newAuthserver(t, s.key).URL)
	config.Connections, config.Worker = 8, true
	if r != nil {
		config.WebhookCA = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw}))
	}
	var err error
	if s.app, err = New(t.Context(), config, slog.New(slog.NewJSONHandler(s.log, nil))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.app.Close)
	s.server = httptest.NewServer(s.app.Handler)
	t.Cleanup(s.server.Close)
	s.run()
	return s
}

// wants requires the status of an answer.
func (a answer) wants(t *testing.T, status int) {
	t.Helper()
	if a.Status != status {
		t.Fatalf("%d %s, want %d", a.Status, a.Body, status)
	}
}

// retryNow makes the endpoints due now.
func (s *service) retryNow() { s.Exec("update account.webhooks set next_try_at = now()") }

// failures reports whether an endpoint has this number of failures.
func (s *service) failures(n int) func() bool {
	return func() bool { return s.Count("select count(*) from account.webhooks where failures = $1", n) == 1 }
}

func within(t *testing.T, what string, condition func() bool) {
	t.Helper()
	await.True(t, what, condition)
}
