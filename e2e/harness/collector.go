package harness

import (
	"compress/gzip"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracing "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/almonerhq/almoner/deploy/local/stack"
)

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
	if closing := file.Close(); err == nil {
		err = closing
	}
	return err
}

// A Span is a span with the name of its service.
type Span struct {
	Service string
	*tracing.Span
}

// Attribute returns the string value of the attribute, or "".
func (s Span) Attribute(name string) string {
	for _, one := range s.Attributes {
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
			service := ""
			for _, one := range of.Resource.Attributes {
				if one.Key == "service.name" {
					service = one.Value.GetStringValue()
				}
			}
			for _, scope := range of.ScopeSpans {
				for _, span := range scope.Spans {
					all = append(all, Span{service, span})
				}
			}
		}
	}
	return all
}
