package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/shared/net/web"
)

// A watch records the secrets in all traffic. It fails the test if a response of the API does not match the OpenAPI
// description. Pages, which have the app's host, are not checked. It records the 5xx responses of both. A failed test
// prints their causes, what the services logged of its last request, and the command that repeats it.
type watch struct {
	t       testing.TB
	secrets *Secrets
	api     string // host of the API
	app     string // host of the pages
	record  *record
	checker *DescriptionChecker
	next    http.RoundTripper

	mu     sync.Mutex
	faults []string // request ids of the last 5xx responses
	last   string   // request id of the last response
}

func watched(t testing.TB, s *stack.Stack, secrets *Secrets, next http.RoundTripper) http.RoundTripper {
	t.Helper()
	checker, err := Checker()
	if err != nil {
		t.Fatalf("read the description: %v", err)
	}
	_, api, _ := strings.Cut(s.BaseURL, "://")
	_, app, _ := strings.Cut(s.AppURL, "://")
	w := &watch{t: t, secrets: secrets, api: api, app: app, record: recordOf(s), checker: checker, next: next}
	t.Cleanup(func() {
		if t.Failed() {
			w.explain(s)
		}
	})
	return w
}

// RoundTrip forwards the request and the response unchanged and checks the response.
func (w *watch) RoundTrip(request *http.Request) (*http.Response, error) {
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
	w.record.noteFault(response, answer)
	w.keep(response)
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

// records are the records of the running stacks. Private deletes those of the stacks that it stops.
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

// A logEntry is a line in the log of a service.
type logEntry struct {
	Level     string `json:"level"`
	Message   string `json:"msg"`
	RequestID string `json:"request_id"`
}

// unexplained returns the 5xx responses whose cause is in no log. The entry that is logged for every request is not a
// cause.
func (r *record) unexplained(logs []byte) (complaints []string) {
	missing := map[string]string{}
	for id, asked := range r.faults.Range {
		missing[id.(string)] = asked.(string)
	}
	for line := range bytes.Lines(logs) {
		var entry logEntry
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

// keep keeps the request id of a response, for explain.
func (w *watch) keep(response *http.Response) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := response.Header.Get(web.RequestIDHeader)
	if w.last = id; response.StatusCode < http.StatusInternalServerError || id == "" {
		return
	}
	if w.faults = append(w.faults, id); len(w.faults) > mostFaults {
		w.faults = w.faults[1:]
	}
}

// explain adds to the output of the test the command that repeats it, the warnings and errors that the services logged
// for the 5xx responses, and everything that they logged for the last one.
func (w *watch) explain(s *stack.Stack) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if folder, err := os.Getwd(); err == nil {
		top, _, _ := strings.Cut(w.t.Name(), "/")
		w.t.Logf("to repeat it: cd %s && go test -count=1 -run '^%s$' .", folder, top)
	}
	logs, err := ReadLogs(s.LogDir())
	if err != nil {
		w.t.Error(err)
	}
	for line := range bytes.Lines(logs) {
		var entry logEntry
		if json.Unmarshal(line, &entry) != nil || entry.RequestID == "" || entry.RequestID != w.last &&
			(entry.Level == "INFO" || !slices.Contains(w.faults, entry.RequestID)) {
			continue
		}
		if w.record.hasSecret(line) {
			line = []byte("a log line with a secret, which is not shown")
		}
		w.t.Log(Redact(string(line)))
	}
}

// hasSecret reports whether the text contains a secret that the tests have recorded.
func (r *record) hasSecret(text []byte) bool {
	for secrets := range r.secrets.Range {
		if len(secrets.(*Secrets).FoundIn(text)) > 0 {
			return true
		}
	}
	return false
}
