package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// What an operator finds in the logs by the request id of an answer: the same request at the gateway and at the
// service, and the grant that it was about.
func TestLogLinesNameTheRequestAndItsGrant(t *testing.T) {
	t.Parallel()
	running := harness.Shared(t)
	p := harness.Enter(t, running, &met)
	office := p.Office(t)
	connector := office.Connector(t, harness.ReadProgrammes)
	tokens := connector.Connect(t, p.Person(t, office.Head))
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
				t.Errorf("not a line about the request: %s", text)
			}
			if line.Path == c.path {
				seen++
			}
			if line.GrantID != "" {
				named++
			}
		}
		if seen != 2 || named != 1 {
			t.Errorf(
				"%s: %d lines name the path and %d the grant, want the gateway's and the service's, and the service's",
				c.service,
				seen,
				named,
			)
		}
	}
}

// wantsObjects says whether every line of the services' logs is a JSON object: also what libraries say of a store that
// is away. The programs' own words to whoever runs migrations are not the log.
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
