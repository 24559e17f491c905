package harness

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracing "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/shared/net/web"
)

// A watch records the secrets in all traffic. It fails the test if a response of the API does not match the OpenAPI
// description. Pages, which have the app's host, are not checked. It records the 5xx responses of both, and a failed
// test prints their causes.
type watch struct {
	t       testing.TB
	secrets *Secrets
	api     string // host of the API
	app     string // host of the pages
	met     *record
	faults  *testFaults
	checker *DescriptionChecker
	next    http.RoundTripper
}

func watched(t testing.TB, s *stack.Stack, secrets *Secrets, next http.RoundTripper) http.RoundTripper {
	t.Helper()
	checker, err := Checker()
	if err != nil {
		t.Fatalf("read the description: %v", err)
	}
	_, api, _ := strings.Cut(s.BaseURL, "://")
	_, app, _ := strings.Cut(s.AppURL, "://")
	faults := &testFaults{}
	t.Cleanup(func() {
		if t.Failed() {
			faults.print(t, s)
		}
	})
	return watch{t, secrets, api, app, recordOf(s), faults, checker, next}
}

// RoundTrip forwards the request and the response unchanged and checks the response.
func (w watch) RoundTrip(request *http.Request) (*http.Response, error) {
	sent, err := reread(&request.Body)
	if err != nil {
		return nil, err
	}
	w.secrets.AddAll(string(sent) + " " + request.URL.String() + " " + request.Header.Get("Authorization"))
	response, err := w.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	answer, err := reread(&response.Body)
	w.secrets.AddAll(string(answer) + " " + response.Header.Get("Location"))
	for _, cookie := range response.Cookies() {
		w.secrets.Add("cookie "+cookie.Name, cookie.Value)
	}
	isOther := request.URL.Host != w.api && request.URL.Host != w.app
	if isOther || err != nil { // err: truncated, so there is no response to check
		return response, nil
	}
	w.met.noteFault(response, answer)
	w.faults.note(response)
	if request.URL.Host != w.api {
		return response, nil
	}
	problems := w.checker.check(exchange{request, response, sent, answer})
	if len(problems) > 0 {
		seen := Answer{
			Request: request.Method + " " + request.URL.Path,
			Status:  response.StatusCode,
			Header:  response.Header,
			Body:    answer,
		}
		w.t.Errorf("does not match /v1/openapi.json: %s\n%s", strings.Join(problems, "; "), seen)
	}
	return response, nil
}

// reread reads a body and replaces it with a copy, which ends with the same error.
func reread(body *io.ReadCloser) ([]byte, error) {
	if *body == nil {
		return nil, nil
	}
	content, err := io.ReadAll(*body)
	_ = (*body).Close()
	again := io.Reader(bytes.NewReader(content))
	if err != nil {
		again = io.MultiReader(again, iotest.ErrReader(err))
	}
	*body = io.NopCloser(again)
	return content, err
}

// A record collects what the tests receive from a stack, for the sweep at its end.
type record struct {
	options Options
	secrets sync.Map // *Secrets → nil
	faults  sync.Map // request id → request and status, for each 5xx response
}

// records are the records of the test process.
var records sync.Map // *stack.Stack → *record

// recordOf returns the record of a stack and creates it if necessary.
func recordOf(s *stack.Stack) *record {
	one, _ := records.LoadOrStore(s, &record{})
	return one.(*record)
}

// noteFault records the request id of a 5xx response. It ignores a workspace that is not provisioned, which is not a
// fault; /readyz, which reports the cause itself; and stacks with another gateway, which may have sent the response
// and has its own log.
func (r *record) noteFault(response *http.Response, answer []byte) {
	if response.StatusCode < 500 || r.options.BaseURL != "" ||
		bytes.Contains(answer, []byte(`"TENANT_NOT_PROVISIONED"`)) ||
		response.Request.URL.Path == "/readyz" {
		return
	}
	asked := fmt.Sprint(response.Request.Method, " ", response.Request.URL.Path, " → ", response.StatusCode)
	r.faults.Store(response.Header.Get(web.RequestIDHeader), asked)
}

// unexplained returns the 5xx responses whose cause is in no log. The entry that is logged for every request is not a
// cause.
func (r *record) unexplained(logs []byte) (complaints []string) {
	missing := map[string]string{}
	for id, asked := range r.faults.Range {
		missing[id.(string)] = asked.(string)
	}
	for line := range bytes.Lines(logs) {
		var entry struct {
			Level     string `json:"level"`
			Message   string `json:"msg"`
			RequestID string `json:"request_id"`
		}
		if len(missing) > 0 && bytes.Contains(line, []byte(`"level":"ERROR"`)) && json.Unmarshal(line, &entry) == nil &&
			entry.Message != "request" {
			delete(missing, entry.RequestID)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(missing)) {
		complaints = append(complaints, fmt.Sprintf("no log says why: %s, request id %q", missing[id], id))
	}
	return complaints
}

// mostFaults is the number of 5xx responses whose causes a failed test prints.
const mostFaults = 10

// testFaults are the request ids of the last 5xx responses that a test received.
type testFaults struct {
	mu  sync.Mutex
	ids []string
}

func (t *testFaults) note(response *http.Response) {
	id := response.Header.Get(web.RequestIDHeader)
	if response.StatusCode < http.StatusInternalServerError || id == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ids = append(t.ids, id); len(t.ids) > mostFaults {
		t.ids = t.ids[1:]
	}
}

// print adds the warnings and errors that the services logged for the responses to the output of the test.
func (f *testFaults) print(t testing.TB, s *stack.Stack) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ids) == 0 {
		return
	}
	logs, err := ReadLogs(s.LogDir())
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(logs)) {
		var entry struct {
			Level     string `json:"level"`
			RequestID string `json:"request_id"`
		}
		if json.Unmarshal([]byte(line), &entry) != nil || entry.Level == "INFO" ||
			!slices.Contains(f.ids, entry.RequestID) {
			continue
		}
		if recordOf(s).hasSecret(line) {
			line = "a log line with a secret, which is not shown"
		}
		t.Log(Redact(line))
	}
}

// hasSecret reports whether the text contains a secret that the tests have recorded.
func (r *record) hasSecret(text string) bool {
	for secrets := range r.secrets.Range {
		if len(secrets.(*Secrets).FoundIn([]byte(text))) > 0 {
			return true
		}
	}
	return false
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
