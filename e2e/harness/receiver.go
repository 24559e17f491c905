package harness

import (
	"compress/gzip"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracing "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/deploy/local/stack"
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
	return p.ConnectorOf(demo.Client{ClientID: address, RedirectURI: redirectURI, Resource: resource})
}

// Choose submits the choice of a workspace, for a client that belongs to no workspace, and returns the response.
func (p Page) Choose(t testing.TB, workspace demo.Workspace) Page {
	t.Helper()
	form := p.DecisionForm(t, "choose")
	form.Fields.Set("workspace", workspace.ID)
	return p.person.Submit(t, form)
}

// A Collector receives traces as an OpenTelemetry Collector does (OTLP over HTTP) and appends them unchanged to a
// file of the stack.
type Collector struct {
	URL string

	mu   sync.Mutex
	file string
}

// spansFile is the file of a stack's traces, relative to its home.
const spansFile = "traces.otlp"

// collect starts a collector that listens until the process ends.
func collect(home string) (*Collector, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &Collector{URL: "http://" + listener.Addr().String(), file: filepath.Join(home, spansFile)}
	go func() { _ = http.Serve(listener, http.HandlerFunc(c.receive)) }()
	return c, nil
}

func (c *Collector) receive(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		body = unpacked
	}
	content, err := io.ReadAll(body)
	if err == nil {
		err = c.store(content)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (c *Collector) store(content []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	file, err := os.OpenFile(c.file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(content))), content...))
	return errors.Join(err, file.Close())
}

// A Span is a span with the name of its service.
type Span struct {
	Service string
	*tracing.Span
}

// Attribute returns the string value of the attribute, or "".
func (s Span) Attribute(name string) string { return attributeOf(s.Attributes, name) }

func attributeOf(attributes []*common.KeyValue, name string) string {
	for _, one := range attributes {
		if one.Key == name {
			return one.Value.GetStringValue()
		}
	}
	return ""
}

// Spans returns all spans that have arrived from a Traced stack.
func Spans(t testing.TB, s *stack.Stack) (all []Span) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(filepath.Dir(s.LogDir()), spansFile))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for len(content) >= 4 {
		length := int(binary.BigEndian.Uint32(content))
		if len(content) < 4+length {
			break // still being written
		}
		var sent collector.ExportTraceServiceRequest
		if err := proto.Unmarshal(content[4:4+length], &sent); err != nil {
			t.Fatalf("the traces cannot be read: %v", err)
		}
		content = content[4+length:]
		for _, of := range sent.ResourceSpans {
			service := attributeOf(of.Resource.Attributes, "service.name")
			for _, scope := range of.ScopeSpans {
				for _, span := range scope.Spans {
					all = append(all, Span{service, span})
				}
			}
		}
	}
	return all
}
