package app

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

// A slowReader reads nothing of a response until it is released.
type slowReader struct {
	header   http.Header
	asked    chan<- struct{}
	released <-chan struct{}
}

func (w *slowReader) Header() http.Header { return w.header }
func (w *slowReader) WriteHeader(int)     {}

func (w *slowReader) Write(b []byte) (int, error) {
	select {
	case w.asked <- struct{}{}:
	default: // later writes of the same response
	}
	<-w.released
	return len(b), nil
}

// Two searches have responses that are not read. Another search of the same credential, and one of another credential
// of the workspace, can run meanwhile (F13, F14).
func TestSearch_SlowReadersDoNotHoldSearches(t *testing.T) {
	s := newService(t)
	workspaceID, _, _ := s.assistedBy(perm.ProgrammesRead)
	s.Programmes(workspaceID, 3)
	credential := func() string {
		user := s.User()
		s.Member(workspaceID, user, perm.ProgrammesRead)
		return s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal()
	}
	slow, other := credential(), credential()
	const path = listPath + "?q=Programme"
	ask := func(method, path, body string, h header) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			r := httptest.NewRequest(method, path, strings.NewReader(body))
			for name, value := range h {
				r.Header.Set(name, value)
			}
			s.app.Handler.ServeHTTP(w, r)
		}
	}
	called := calling("list_programmes", map[string]any{"q": "Programme"})
	searches := map[string]func(http.ResponseWriter){
		"REST": ask("GET", path, "", as(slow, workspaceID)),
		"MCP":  ask("POST", mcpPath, called, assistant(slow)),
	}
	for name, search := range searches {
		t.Run(name, func(t *testing.T) {
			asked, released := make(chan struct{}), make(chan struct{})
			ended := make(chan struct{})
			for range 2 {
				go func() {
					search(&slowReader{header: http.Header{}, asked: asked, released: released})
					ended <- struct{}{}
				}()
				<-asked
			}
			for _, h := range map[string]header{
				"the credential": as(slow, workspaceID),
				"another":        as(other, workspaceID),
			} {
				s.get(path, h).wants(t, 200, `"count":3`)
			}
			close(released)
			<-ended
			<-ended
		})
	}
}
