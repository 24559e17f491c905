package harness

import (
	"encoding/pem"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
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

// A MetadataHost is a platform's website that serves the metadata documents of Claude Code, which is not registered.
type MetadataHost struct{ *testkit.MetadataHost }

// NewMetadataHost starts a website without documents.
func NewMetadataHost(t testing.TB) *MetadataHost {
	t.Helper()
	return &MetadataHost{testkit.NewMetadataHost(t)}
}

// Settings returns the settings of a development deployment that accepts this website's clients as clients of the
// platform.
func (m *MetadataHost) Settings(platform string) map[string]string {
	return map[string]string{
		"ALMONER_CLIENT_DOMAINS":     m.Name() + "=" + platform,
		"ALMONER_CLIENT_DOCUMENT_CA": m.PEM(),
	}
}

// Client publishes a valid client metadata document with changes to it and returns its URL, which is the client id.
func (m *MetadataHost) Client(path string, redirects []string, changes map[string]any) string {
	device := "urn:ietf:params:oauth:grant-type:device_code"
	document := map[string]any{
		"client_name": "Claude Code",
		"grant_types": []string{"authorization_code", "refresh_token", device},
	}
	maps.Copy(document, changes)
	return m.MetadataHost.Client(path, document, redirects...)
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
