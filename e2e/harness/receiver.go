package harness

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/demo"
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

// A MetadataHost is a platform's website on this machine with TLS. It serves the metadata documents of clients that are
// not registered.
type MetadataHost struct {
	URL      string
	Requests atomic.Int32 // number of requests

	t       testing.TB
	server  *httptest.Server
	mu      sync.Mutex
	answers map[string]http.HandlerFunc
}

// NewMetadataHost starts a website without documents.
func NewMetadataHost(t testing.TB) *MetadataHost {
	t.Helper()
	p := &MetadataHost{t: t, answers: map[string]http.HandlerFunc{}}
	p.server = httptest.NewTLSServer(p)
	p.URL = p.server.URL
	t.Cleanup(p.server.Close)
	return p
}

// Host returns the website's host name and port.
func (m *MetadataHost) Host() string { return strings.TrimPrefix(m.URL, "https://") }

// Settings returns the settings of a development deployment that accepts this website's clients as clients of the
// platform.
func (m *MetadataHost) Settings(platform string) map[string]string {
	return map[string]string{
		"ALMONER_CLIENT_DOMAINS": m.Host() + "=" + platform,
		"ALMONER_CLIENT_DOCUMENT_CA": string(
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.server.Certificate().Raw}),
		),
	}
}

// Answer sets the handler of a path and returns the URL.
func (m *MetadataHost) Answer(path string, answer http.HandlerFunc) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers[path] = answer
	return m.URL + path
}

// Publish serves an object as JSON and returns its URL.
func (m *MetadataHost) Publish(path string, object map[string]any) string {
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

// Client publishes a valid client metadata document with changes to it and returns its URL, which is the client id.
func (m *MetadataHost) Client(path string, redirects []string, changes map[string]any) string {
	m.t.Helper()
	document := map[string]any{
		"client_id":                  m.URL + path,
		"client_name":                "Claude Code",
		"redirect_uris":              redirects,
		"token_endpoint_auth_method": "none",
		"grant_types": []string{
			"authorization_code",
			"refresh_token",
			"urn:ietf:params:oauth:grant-type:device_code",
		},
		"response_types": []string{"code"},
	}
	for name, value := range changes {
		document[name] = value
	}
	return m.Publish(path, document)
}

func (m *MetadataHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.Requests.Add(1)
	m.mu.Lock()
	answer := m.answers[r.URL.Path]
	m.mu.Unlock()
	if answer == nil {
		http.NotFound(w, r)
		return
	}
	answer(w, r)
}

// DocumentClient returns the client whose document is at the address, with the resource that it requests.
func (p *Product) DocumentClient(address, redirectURI, resource string) Connector {
	return Connector{ClientID: address, RedirectURI: redirectURI, Resource: resource, product: p}
}

// Choose submits the choice of a workspace, for a client that belongs to no workspace, and returns the response.
func (p Page) Choose(t testing.TB, workspace demo.Workspace) Page {
	t.Helper()
	form := p.DecisionForm(t, "choose")
	form.Fields.Set("workspace", workspace.ID)
	return p.person.Submit(t, form)
}
