package app

import (
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"

	store "github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
)

// longSearch exceeds the time limit of a search in the workspace of slowWorkspace: its text is too short for the
// index.
const longSearch = listPath + "?q=%C3%9F%C3%9F"

// slowWorkspace creates a workspace with so many long summaries that longSearch takes seconds, and several
// credentials in it.
func (s *service) slowWorkspace(credentials int) (workspaceID uuid.UUID, all []header) {
	s.t.Helper()
	workspaceID, user := s.member(perm.ProgrammesRead)
	s.Exec(`insert into resource.programmes (id, tenant_id, name, summary, status)
		select gen_random_uuid(), $1, 'Programme ' || i, repeat('Support for families. ', 220), 'draft'
		from generate_series(1, 6000) i`, workspaceID)
	for range credentials {
		all = append(all, as(s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal(), workspaceID))
	}
	return workspaceID, all
}

// F13: searches that take too long are refused and do not slow down another workspace.
func TestSearch_DoesNotSlowOtherWorkspaces(t *testing.T) {
	s := ownService(t, searchesAsDescribed)
	if err := store.MigrateJobs(t.Context(), s.Database.Owner); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, 200, func() answer { return s.get("/readyz", nil) })
	_, greedy := s.slowWorkspace(8)
	workspaceID, pat := s.reader()
	honest := as(pat, workspaceID)
	s.Programmes(workspaceID, 3)

	var group sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	stop := make(chan struct{})
	for _, h := range greedy {
		for range 8 {
			group.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					a := s.get(longSearch, h)
					mu.Lock()
					codes[a.Status]++
					mu.Unlock()
				}
			})
		}
	}
	const rounds, promptly = 10, time.Second
	for range rounds {
		for _, path := range []string{listPath, listPath + "?q=" + url.QueryEscape("Programme 2"), "/readyz"} {
			// A busy machine may exceed the limit of a search or of a probe.
			testkit.Quick(t, promptly, func() { s.eventually(t, 200, func() answer { return s.get(path, honest) }) })
		}
		time.Sleep(50 * time.Millisecond)
	}
	close(stop)
	group.Wait()
	if codes[422] == 0 || codes[429] == 0 || len(codes) != 2 {
		t.Errorf("the searches were answered with %v", codes)
	}
}

func TestSearch_TooExpensiveIs422(t *testing.T) {
	s := ownService(t, searchesAsDescribed)
	_, greedy := s.slowWorkspace(1)
	testkit.Quick(t, time.Second, func() {
		s.get(longSearch, greedy[0]).expect(t, 422, "QUERY_TOO_EXPENSIVE", "")
	})
	token := strings.TrimPrefix(greedy[0]["Authorization"], "Bearer ")
	r := s.post(assistant(token), calling("list_programmes", map[string]any{"q": "ßß"})).result(t)
	if !r.Result.IsError || !strings.Contains(r.Result.Content[0].Text, "takes too long") {
		t.Errorf("the tool returned %+v", r)
	}
}

// The contract's bounds of one credential, as reported by the headers.
func TestBounds_OneCredentialHas64InFlightAnd2Searches(t *testing.T) {
	s := ownService(t, waitsFor(await.Long), func(c *Config) {
		c.searchTime = await.Long / 2
		c.Connections = 64 // so that the searches of a workspace are not bounded first
	})
	workspaceID, user := s.member(perm.ProgrammesRead)
	credential := func() header { return as(s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal(), workspaceID) }
	h, searcher := credential(), credential()
	a := s.get(listPath, h)
	a.header(t, "RateLimit-Policy", `"requests-in-flight";q=64;qu="concurrent-requests"`).
		header(t, "RateLimit", `"requests-in-flight";r=63`)

	for name, c := range map[string]struct {
		path            string
		h               header
		allowed, beyond int
		left            string
	}{
		"requests": {listPath, h, 64, 5, `"requests-in-flight";r=0`},
		"searches": {listPath + "?q=Programme", searcher, 2, 1, `"searches-in-flight";r=0`},
	} {
		s.Exec("begin") // blocks every request that reads programmes
		s.Exec("lock table resource.programmes in access exclusive mode")
		answers := make(chan answer, c.allowed+c.beyond)
		for range c.allowed + c.beyond {
			go func() { answers <- s.get(c.path, c.h) }()
		}
		for range c.beyond {
			a := <-answers
			a.expect(t, 429, "RATE_LIMITED", "")
			if a.Header.Get("Retry-After") != "1" || !strings.HasSuffix(a.Header.Get("RateLimit"), c.left) {
				t.Errorf("%s: %v", name, a.Header)
			}
		}
		s.Exec("rollback")
		for range c.allowed {
			(<-answers).wants(t, 200)
		}
	}
	s.get(listPath, h).wants(t, 200)
}
