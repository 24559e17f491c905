package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// An operator can find a request in the logs by the request id of its response: the lines of the gateway and of the
// service, and the grant.
func TestLogs_ContainRequestAndGrant(t *testing.T) {
	t.Parallel()
	running := shared(t)
	p := harness.NewProduct(t, running, &met)
	ws := p.NewWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes)
	tokens := connector.Connect(t, p.Person(t, ws.Owner))
	refreshed := connector.Refresh(t, tokens.RefreshToken)
	refreshed.Tokens(t)
	listed := connector.List(t, tokens)
	listed.Wants(t, http.StatusOK)
	logs, err := harness.ReadLogs(running.LogDir())
	must(t, err)
	for _, c := range []struct {
		answer  harness.Answer
		service string
		path    string
	}{{refreshed, "authserver", harness.TokenPath}, {listed, "resourceapi", programmes}} {
		id := c.answer.Header.Get("X-Request-Id")
		var seen, named int
		for text := range strings.Lines(string(logs)) {
			if !strings.Contains(text, id) {
				continue
			}
			var line struct {
				RequestID string `json:"request_id"`
				GrantID   string `json:"grant_id"`
				Path      string `json:"path"`
			}
			if err := json.Unmarshal([]byte(text), &line); err != nil || line.RequestID != id {
				t.Errorf("not a log line of the request: %s", text)
			}
			if line.Path == c.path {
				seen++
			}
			if line.GrantID != "" {
				named++
			}
		}
		if seen != 2 || named != 1 {
			t.Errorf("%s: %d lines with the path and %d with the grant, want 2 and 1", c.service, seen, named)
		}
	}
}

// wantsObjects checks that every line of the services' logs is a JSON object, including what libraries log when a
// store is unavailable. The output of migrations is not part of the log.
func wantsObjects(t *testing.T, logs []byte) {
	t.Helper()
	for text := range strings.Lines(string(logs)) {
		var line map[string]any
		text = strings.TrimSpace(text)
		if text == "" || strings.HasPrefix(text, "applied ") || strings.Contains(text, "index of searches") ||
			strings.HasSuffix(text, "schema is up to date") {
			continue
		}
		if json.Unmarshal([]byte(text), &line) != nil {
			t.Errorf("a line of a log is not JSON: %s", text)
		}
	}
}
