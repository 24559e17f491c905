// Package metadatatest serves metadata documents of clients to tests, with TLS on the local machine.
package metadatatest

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A Host serves documents.
type Host struct {
	t        testing.TB
	server   *httptest.Server
	requests atomic.Int32

	mu     sync.Mutex
	bodies map[string]string
	status int
}

// Start starts a host without documents.
func Start(t testing.TB) *Host {
	t.Helper()
	h := &Host{t: t, bodies: map[string]string{}, status: http.StatusOK}
	h.server = httptest.NewTLSServer(h)
	t.Cleanup(h.server.Close)
	return h
}

// Name returns the host name with its port.
func (h *Host) Name() string { return strings.TrimPrefix(h.server.URL, "https://") }

// PEM returns the certificate to trust, in the format of the setting.
func (h *Host) PEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.server.Certificate().Raw}))
}

// Requests returns how many requests the host has received.
func (h *Host) Requests() int { return int(h.requests.Load()) }

// Put publishes or replaces an object and returns its URL.
func (h *Host) Put(path string, object map[string]any) string {
	h.t.Helper()
	body, err := json.Marshal(object)
	if err != nil {
		h.t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bodies[path] = string(body)
	return h.server.URL + path
}

// Client publishes a valid document of a client with these redirect URIs and with changes, and returns its URL. A
// change to nil removes a member.
func (h *Host) Client(path string, changes map[string]any, redirects ...string) string {
	h.t.Helper()
	document := map[string]any{
		"client_id":                  h.server.URL + path,
		"client_name":                "Claude",
		"redirect_uris":              redirects,
		"token_endpoint_auth_method": "none",
		"grant_types":                []string{"authorization_code", "refresh_token"},
		"response_types":             []string{"code"},
	}
	for name, value := range changes {
		document[name] = value
		if value == nil {
			delete(document, name)
		}
	}
	return h.Put(path, document)
}

// Fail makes the host respond to every request with status. A status of 200 ends this.
func (h *Host) Fail(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = status
}

func (h *Host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.requests.Add(1)
	h.mu.Lock()
	status := h.status
	body, found := h.bodies[r.URL.Path]
	h.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if status == http.StatusOK && !found {
		status = http.StatusNotFound
	}
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}
