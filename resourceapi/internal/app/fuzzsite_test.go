package app

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/devkit/fuzzkit"
)

// A fuzzed is a service with a workspace that has everything that inputs can refer to. It is called without a listener.
type fuzzed struct {
	*service
	from fuzzkit.Addresses
	cast cast
	left int // inputs until the next cast
}

// A cast is a workspace with a member who has every permission.
type cast struct {
	workspaceID, programme uuid.UUID
	pat, access, assistant string
	form                   formRecord
	submission             sentSubmission
	importPath, cursor     string
}

// inputsPerCast limits the length of lists, and the submissions to a form, which are rate limited.
const inputsPerCast = 200

func newFuzzed(t testing.TB) *fuzzed {
	t.Helper()
	return &fuzzed{service: ownService(fuzzkit.Outside(t), func(c *Config) { c.Proxies = fuzzkit.Proxy })}
}

// renew creates a new cast if the old one was used often or was changed.
func (s *fuzzed) renew() {
	if s.left--; s.left > 0 {
		return
	}
	s.left = inputsPerCast
	everything := perm.ForConnectors()
	c := cast{workspaceID: s.Workspace()}
	user := s.User()
	s.Member(c.workspaceID, user, everything...)
	c.programme = s.Programmes(c.workspaceID, 3)[0]
	c.pat = s.PAT(c.workspaceID, user, everything...).Reveal()
	c.access = s.token(claims(s.Grant(standing.Confidential, c.workspaceID, user, resource, everything...)))
	c.assistant = s.token(claims(s.Grant(standing.Connector, c.workspaceID, user, mcpResource, everything...)))
	s.cast = c
	s.get(listPath, "Bearer "+c.access, 200) // fetches the keys of access tokens
	s.post(formsPath, "application/json", allTypes, 201, &s.cast.form)
	s.post(
		s.cast.form.path()+"/submissions",
		"application/json",
		submissionOf(s.submissionToken(), goodAnswers()),
		202,
		&s.cast.submission,
	)
	var made struct{ StatusURL string }
	s.post(listPath+"/imports", "text/csv", "name\nx\n", 202, &made)
	s.cast.importPath = strings.TrimPrefix(made.StatusURL, base)
	var page struct{ Meta struct{ NextCursor string } }
	s.get(listPath+"?limit=1", "Bearer "+c.pat, 200).decode(s.t, &page)
	s.cast.cursor = page.Meta.NextCursor
}

// spoil marks the cast as changed: the next input gets a new one.
func (s *fuzzed) spoil() { s.left = 0 }

func (s *fuzzed) get(target, authorization string, status int) answer {
	return s.send("GET", target, authorization, "", "", status)
}

func (s *fuzzed) post(target, contentType, body string, status int, into any) {
	s.send("POST", target, "Bearer "+s.cast.pat, contentType, body, status).decode(s.t, into)
}

// send sends a request of the test itself and requires the status.
func (s *fuzzed) send(method, target, authorization, contentType, body string, status int) answer {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for name, value := range map[string]string{
		"Authorization": authorization,
		"X-Tenant-Id":   s.cast.workspaceID.String(),
		"Content-Type":  contentType,
	} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	got := fuzzkit.Ask(s.app.Handler, r)
	if got.Status != status {
		s.t.Fatalf("%s %s: %d %s", method, target, got.Status, got.Body)
	}
	return answer{Status: got.Status, Header: got.Header, Body: got.Body}
}

// submissionToken returns a token of a page opened a minute ago, as by a user.
func (s *fuzzed) submissionToken() string {
	return s.tokens.ForSubmission(s.cast.form.ID, time.Now().Add(-time.Minute))
}

// stock returns the values of the words in inputs.
func (s *fuzzed) stock() fuzzkit.Placeholders {
	submission, _, _ := strings.Cut(strings.TrimPrefix(s.cast.submission.StatusURL, base), "?")
	_, status, _ := strings.Cut(s.cast.submission.StatusURL, "?token=")
	say := func(text string) func() string { return func() string { return text } }
	return fuzzkit.Placeholders{
		Public: map[string]func() string{
			"tenant":     s.cast.workspaceID.String,
			"programme":  s.cast.programme.String,
			"form":       s.cast.form.ID.String,
			"embed":      say(s.cast.form.path()),
			"import":     say(s.cast.importPath),
			"submission": say(submission),
			"cursor":     say(s.cast.cursor),
			"fresh":      uuid.NewString,
		},
		Secret: map[string]func() string{
			"pat":       say(s.cast.pat),
			"access":    say(s.cast.access),
			"assistant": say(s.cast.assistant),
			"status":    say(status),
			"sending":   s.submissionToken,
		},
	}
}

// process processes the waiting imports, like the service's own worker.
func (s *fuzzed) process() error {
	for {
		found, err := s.app.store.ProcessImport(context.Background())
		if err != nil {
			return fmt.Errorf("process an import: %w", err)
		}
		if !found {
			return nil
		}
	}
}
