package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/shared/web"
)

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
