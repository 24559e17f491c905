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

// A record is what the tests have met at a stack, for the sweep at its end.
type record struct {
	options Options
	secrets sync.Map // *Secrets → nothing
	faults  sync.Map // request id → what was asked, and the status: of each answer that says that we are at fault
}

// records are those of the test process.
var records sync.Map // *stack.Stack → *record

// recordOf begins it where it must.
func recordOf(s *stack.Stack) *record {
	one, _ := records.LoadOrStore(s, &record{})
	return one.(*record)
}

// noteFault keeps the request id of an answer that says that we are at fault. A workspace that is not provisioned is
// nobody's fault, /readyz says by itself what is wrong, and another gateway than ours, which may be who answers, has a
// log of its own.
func (r *record) noteFault(response *http.Response, answer []byte) {
	if response.StatusCode < 500 || r.options.BaseURL != "" ||
		bytes.Contains(answer, []byte(`"TENANT_NOT_PROVISIONED"`)) ||
		response.Request.URL.Path == "/readyz" {
		return
	}
	asked := fmt.Sprint(response.Request.Method, " ", response.Request.URL.Path, " → ", response.StatusCode)
	r.faults.Store(response.Header.Get(web.RequestIDHeader), asked)
}

// unexplained are the faults of which no log has the cause. That there was such a request, which is logged of every
// one, is no cause.
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
