package app

import (
	"encoding/json"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/rest"
)

// longSearch exceeds the time limit of a search in the workspace of slowWorkspace: its text is too short for the
// index.
const longSearch = listPath + "?q=%C3%9F%C3%9F"

// slowWorkspace creates a workspace with so many long summaries that longSearch takes seconds, and four credentials in
// it.
func (s *service) slowWorkspace() (all []header) {
	s.t.Helper()
	workspaceID, user := s.member(perm.ProgrammesRead)
	s.Exec(`insert into resource.programmes (id, tenant_id, name, summary, status)
		select gen_random_uuid(), $1, 'Programme ' || i, repeat('Support for families. ', 220), 'draft'
		from generate_series(1, 6000) i`, workspaceID)
	for range 4 {
		all = append(all, as(s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal(), workspaceID))
	}
	return all
}

// F13: searches that take too long are refused and do not slow down another workspace.
func TestSearch_TooExpensiveIs422AndDoesNotSlowOthers(t *testing.T) {
	s := ownService(t, searchesAsDescribed)
	s.eventually(t, 200, func() answer { return s.get("/readyz", nil) })
	greedy := s.slowWorkspace()
	honest := s.reader()
	s.Programmes(honest.workspace(), 3)
	testkit.Quick(t, time.Second, func() {
		s.get(longSearch, greedy[0]).expect(t, 422, "QUERY_TOO_EXPENSIVE", "")
	})
	searching := calling("list_programmes", map[string]any{"q": "ßß"})
	s.post(assistant(greedy[0].token()), searching).failed(t, "takes too long")

	var group sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	stop := make(chan struct{})
	for _, h := range greedy {
		for range 4 {
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
	const rounds, promptly = 3, time.Second
	for range rounds {
		for _, path := range []string{listPath, listPath + "?q=" + url.QueryEscape("Programme 2"), "/readyz"} {
			// A busy machine may exceed the limit of a search or of a probe.
			testkit.Quick(t, promptly, func() { s.eventually(t, 200, func() answer { return s.get(path, honest) }) })
		}
	}
	close(stop)
	group.Wait()
	if codes[422] == 0 || codes[429] == 0 || len(codes) != 2 {
		t.Errorf("the searches were answered with %v", codes)
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

// A listPage is the common part of every list.
type listPage = paged[struct{ ID uuid.UUID }]

// follow reads a list of long records with read, which takes a cursor, and checks that it has each of the want
// records once, in pages of bounded length. It returns the number of pages.
func follow(t *testing.T, want int, read func(cursor string) (content string)) int {
	t.Helper()
	seen := map[uuid.UUID]bool{}
	for pages, cursor := 1, ""; ; pages++ {
		content := read(cursor)
		var p listPage
		must(t, json.Unmarshal([]byte(content), &p))
		if len(content) > rest.MaxPageBytes || len(p.Data) == 0 || p.Meta.Count != len(p.Data) {
			t.Fatalf("page %d: %d bytes, %d records, count %d", pages, len(content), len(p.Data), p.Meta.Count)
		}
		for _, one := range p.Data {
			if seen[one.ID] {
				t.Errorf("page %d: %s appears twice", pages, one.ID)
			}
			seen[one.ID] = true
		}
		if cursor = p.Meta.NextCursor; cursor == "" {
			if len(seen) != want {
				t.Errorf("%d records, want %d", len(seen), want)
			}
			return pages
		}
	}
}

// Long answers of anonymous senders must not make pages too long (F12), nor other long records.
func TestLists_LongRecordsEndAPageEarly(t *testing.T) {
	s, h := newDeveloper(t)
	f := s.makeForm(h, allTypes)
	s.Exec(`insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped, created_at)
		select gen_random_uuid(), $1, $2, gen_random_uuid(),
			(select jsonb_object_agg('field' || k, repeat('<', 5000)) from generate_series(1, 12) k),
			'[]', false, now() + n * interval '1 ms'
		from generate_series(1, 75) n`, h.workspace(), f.ID)
	s.Exec(`insert into resource.forms (id, tenant_id, embed_key, title, fields, allowed_origins, created_by)
		select gen_random_uuid(), $1, gen_random_uuid()::text, 'Form',
			jsonb_build_array(jsonb_build_object('label', repeat('&', 60000))), '{}', $1
		from generate_series(1, 74) n`, h.workspace())
	s.Programmes(h.workspace(), 210)
	s.Exec("update resource.programmes set summary = repeat('🜚', 5000) where {mine}")
	for path, records := range map[string]int{ // of 4.2 to 4.5 MB
		f.own() + "/submissions?":  75,
		formsPath + "?":            75,
		listPath + "?":             210, // in the round trip of the standing
		listPath + "?q=Programme&": 210,
	} {
		pages := follow(t, records, func(cursor string) string {
			if cursor != "" {
				cursor = "&cursor=" + cursor
			}
			// A busy machine may need more than a second for 12 MB.
			return s.insist("GET", path+"limit=200"+cursor, h, "").wants(t, 200).Body
		})
		if pages != 2 {
			t.Errorf("%s: %d pages, want 2", path, pages)
		}
	}
}

// A tool result contains a page twice, once as text.
func TestListProgrammes_ToolResultIsBounded(t *testing.T) {
	s := newService(t)
	workspaceID, _, token := s.assistedBy(perm.ProgrammesRead)
	s.Programmes(workspaceID, 150)
	for summary, want := range map[string]int{`"`: 2, "<": 3, "🜚": 2} {
		s.Exec("update resource.programmes set summary = repeat($1, 5000) where {mine}", summary)
		pages := follow(t, 150, func(cursor string) string {
			a := s.post(assistant(token), calling("list_programmes", map[string]any{"limit": 200, "cursor": cursor}))
			content := string(a.result(t).Result.Structured)
			if len(a.Body) > rest.MaxPageBytes || !strings.Contains(content, plainJSON(strings.Repeat(summary, 5000))) {
				t.Errorf("%s: %d bytes, beginning %.300s", summary, len(a.Body), a.Body)
			}
			return content
		})
		if pages != want {
			t.Errorf("%s: %d pages, want %d", summary, pages, want)
		}
	}
}

// A read takes one round trip to Postgres, for the standing and the data. A refusal takes one round trip if the
// credential is well-formed, and none if it is not.
func TestRead_TakesOneRoundTrip(t *testing.T) {
	const times, beside = 20, 12 // beside: for new connections, prepared statements and the usage record
	var trips *testkit.Trips
	s := ownService(t, func(c *Config) {
		var through string
		through, trips = testkit.CountTrips(t, c.DatabaseURL.Reveal())
		c.DatabaseURL = credential.Secret(through)
	})
	workspaceID, user := s.member(perm.ProgrammesRead)
	one := s.Programmes(workspaceID, 60)[7].String()
	personal := s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal()
	grant := s.Grant(standing.Connector, workspaceID, user, resource, perm.ProgrammesRead)
	access := s.token(claims(grant))
	unknown := claims(grant)
	unknown.GrantID = uuid.New()
	for _, c := range []struct {
		what, path, token string
		workspaceID       uuid.UUID
		status, each      int
	}{
		{"a list by access token", listPath, access, workspaceID, 200, 1},
		{"a list by personal access token", listPath, personal, workspaceID, 200, 1},
		{"a programme by access token", listPath + "/" + one, access, workspaceID, 200, 1},
		{"a programme by personal access token", listPath + "/" + one, personal, workspaceID, 200, 1},
		{"an unknown programme", listPath + "/" + uuid.NewString(), personal, workspaceID, 404, 1},
		{"another workspace", listPath, personal, uuid.New(), 403, 1},
		{"an unknown personal access token", listPath, s.unknownPAT(), workspaceID, 401, 1},
		{"an access token of an unknown grant", listPath, s.token(unknown), workspaceID, 401, 1},
		{"a personal access token with a typo", listPath, personal[:len(personal)-1] + "_", workspaceID, 401, 0},
		{"an access token with a bad signature", listPath, access[:len(access)-10] + "AAAAAAAAAA", workspaceID, 401, 0},
		{"a word", listPath, "word", workspaceID, 401, 0},
	} {
		send := func() {
			s.get(c.path, as(c.token, c.workspaceID)).wants(t, c.status)
		}
		send()
		n := trips.Of(func() {
			for range times {
				send()
			}
		})
		if least := c.each * times; n < least || n > least+beside {
			t.Errorf("%s: %d requests took %d round trips to Postgres, want %d", c.what, times, n, least)
		}
	}
}
