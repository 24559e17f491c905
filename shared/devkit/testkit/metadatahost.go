package testkit

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

// A MetadataHost is a platform's website on this machine with TLS. It serves the metadata documents of clients that are
// not registered.
type MetadataHost struct {
	URL string

	t        testing.TB
	server   *httptest.Server
	requests atomic.Int32

	mu      sync.Mutex
	answers map[string]http.HandlerFunc
	status  int
}

// NewMetadataHost starts a website without documents.
func NewMetadataHost(t testing.TB) *MetadataHost {
	t.Helper()
	m := &MetadataHost{t: t, answers: map[string]http.HandlerFunc{}, status: http.StatusOK}
	m.server = httptest.NewTLSServer(m)
	m.URL = m.server.URL
	t.Cleanup(m.server.Close)
	return m
}

// Name returns the host name with its port.
func (m *MetadataHost) Name() string { return strings.TrimPrefix(m.URL, "https://") }

// PEM returns the certificate to trust, in the format of the setting.
func (m *MetadataHost) PEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.server.Certificate().Raw}))
}

// Requests returns how many requests the host has received.
func (m *MetadataHost) Requests() int { return int(m.requests.Load()) }

// Answer sets the handler of a path and returns the URL.
func (m *MetadataHost) Answer(path string, answer http.HandlerFunc) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers[path] = answer
	return m.URL + path
}

// Put publishes or replaces an object and returns its URL.
func (m *MetadataHost) Put(path string, object map[string]any) string {
	m.t.Helper()
	body, err := json.Marshal(object)
	if err != nil {
		m.t.Fatal(err)
	}
	return m.Answer(path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	})
}

// Client publishes a valid document of a client with these redirect URIs and with changes, and returns its URL, which
// is the client id. A change to nil removes a member.
func (m *MetadataHost) Client(path string, changes map[string]any, redirects ...string) string {
	m.t.Helper()
	document := map[string]any{
		"client_id":                  m.URL + path,
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
	return m.Put(path, document)
}

// Fail makes the host respond to every request with status. A status of 200 ends this.
func (m *MetadataHost) Fail(status int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status = status
}

func (m *MetadataHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.requests.Add(1)
	m.mu.Lock()
	status, answer := m.status, m.answers[r.URL.Path]
	m.mu.Unlock()
	switch {
	case status != http.StatusOK:
		w.WriteHeader(status)
	case answer == nil:
		http.NotFound(w, r)
	default:
		answer(w, r)
	}
}
