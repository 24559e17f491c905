package harness

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/shared/web"
)

// mostFaults is the number of 5xx responses whose causes a failed test prints.
const mostFaults = 10

// testFaults are the request ids of the last 5xx responses that a test received.
type testFaults struct {
	mu  sync.Mutex
	ids []string
}

func (f *testFaults) note(response *http.Response) {
	id := response.Header.Get(web.RequestIDHeader)
	if response.StatusCode < http.StatusInternalServerError || id == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ids = append(f.ids, id); len(f.ids) > mostFaults {
		f.ids = f.ids[1:]
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
