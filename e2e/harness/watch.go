package harness

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/openapicheck"
)

// Checker returns the OpenAPI checker of this process, with the description and the responses that all tests have
// received.
var Checker = sync.OnceValues(openapicheck.New)

// A watch fails the test if a response of the API does not match the OpenAPI description. Pages, which have the app's
// host, are not checked. It records the 5xx responses of both, and a failed test prints their causes.
type watch struct {
	t       testing.TB
	api     string // host of the API
	app     string // host of the pages
	met     *record
	faults  *testFaults
	checker *openapicheck.Checker
	next    http.RoundTripper
}

func watched(t testing.TB, s *stack.Stack, next http.RoundTripper) http.RoundTripper {
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
	return watch{t, api, app, recordOf(s), faults, checker, next}
}

// RoundTrip forwards the request and the response unchanged and checks the response.
func (w watch) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Host != w.api && request.URL.Host != w.app {
		return w.next.RoundTrip(request)
	}
	sent, err := reread(&request.Body)
	if err != nil {
		return nil, err
	}
	response, err := w.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	answer, err := reread(&response.Body)
	if err != nil { // truncated: there is no response to check
		return response, nil
	}
	w.met.noteFault(response, answer)
	w.faults.note(response)
	if request.URL.Host != w.api {
		return response, nil
	}
	problems := w.checker.Check(openapicheck.Exchange{
		Method:       request.Method,
		Path:         request.URL.EscapedPath(),
		Query:        request.URL.Query(),
		Header:       request.Header,
		Body:         sent,
		Status:       response.StatusCode,
		AnswerHeader: response.Header,
		Answer:       answer,
	})
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
		again = io.MultiReader(again, failing{err})
	}
	*body = io.NopCloser(again)
	return content, err
}

// failing is a reader that always returns an error.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
