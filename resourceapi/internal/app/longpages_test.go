package app

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/rest"
)

// A listPage is the common part of every list.
type listPage struct {
	Data []struct {
		ID      uuid.UUID
		Summary string
	}
	Meta struct {
		Count      int
		NextCursor string
	}
}

// follow reads a list of long records with read, which takes a cursor, and checks that it has each of the want
// records once, in pages of bounded length. It returns the number of pages.
func follow(t *testing.T, want int, read func(cursor string) (content string)) int {
	t.Helper()
	seen := map[uuid.UUID]bool{}
	for pages, cursor := 1, ""; ; pages++ {
		content := read(cursor)
		var p listPage
		if err := json.Unmarshal([]byte(content), &p); err != nil {
			t.Fatal(err)
		}
		if len(content) > rest.MaxPageBytes || len(p.Data) == 0 || p.Meta.Count != len(p.Data) {
			t.Fatalf("page %d: %d bytes, %d records, count %d", pages, len(content), len(p.Data), p.Meta.Count)
		}
		if p.Meta.NextCursor != "" && len(p.Data) < 200 && len(content) < rest.MaxPageBytes*9/10 {
			t.Errorf("page %d ends after %d bytes, with %d records", pages, len(content), len(p.Data))
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

// Long answers of anonymous senders must not make pages too long (F12).
func TestSubmissions_LongAnswersEndAPageEarly(t *testing.T) {
	s := newService(t)
	workspaceID, h := s.workspace()
	f := s.makeForm(h, allTypes)
	s.Exec(`insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped, created_at)
		select gen_random_uuid(), $1, $2, gen_random_uuid(),
			(select jsonb_object_agg('field' || k, repeat('<', 5000)) from generate_series(1, 12) k),
			'[]', false, now() + n * interval '1 ms'
		from generate_series(1, 205) n`, workspaceID, f.ID)
	pages := follow(
		t,
		205,
		func(cursor string) string { return s.list(h, formsPath+"/"+f.ID.String()+"/submissions", cursor) },
	)
	if pages != 4 { // 205 submissions of 60 kB are 12.4 MB
		t.Errorf("%d pages", pages)
	}
	s.Exec(`insert into resource.forms (id, tenant_id, embed_key, title, fields, allowed_origins, created_by)
		select gen_random_uuid(), $1, 'alm_embed_' || n, 'Form',
			jsonb_build_array(jsonb_build_object('label', repeat('&', 60000))), '{}', $1
		from generate_series(1, 100) n`, workspaceID)
	if pages := follow(t, 101, func(cursor string) string { return s.list(h, formsPath, cursor) }); pages != 2 {
		t.Errorf("%d pages of forms", pages)
	}
}

// list reads one page of a list, of at most 200 records.
func (s *service) list(h header, path, cursor string) string {
	s.t.Helper()
	if cursor != "" {
		cursor = "&cursor=" + cursor
	}
	if !strings.Contains(path, "?") {
		path += "?"
	}
	a := s.get(path+"limit=200"+cursor, h)
	for tries := 0; a.Status == 503 && tries < 5; tries++ { // a busy machine may need more than a second for 12 MB
		a = s.get(path+"limit=200"+cursor, h)
	}
	if a.Status != 200 {
		s.t.Fatalf("%d %s", a.Status, a.Body)
	}
	return a.Body
}

func TestProgrammes_LongSummariesEndAPageEarly(t *testing.T) {
	s := newService(t)
	workspaceID, pat := s.reader()
	s.Programmes(workspaceID, 210)
	s.Exec("update resource.programmes set summary = repeat('🜚', 5000) where {mine}")
	for _, query := range []string{"", "?q=Programme&"} { // in the round trip of the standing, and as a search
		pages := follow(t, 210, func(cursor string) string {
			return s.list(as(pat, workspaceID), listPath+query, cursor)
		})
		if pages != 2 {
			t.Errorf("%s: %d pages", query, pages)
		}
	}
}

// A tool result contains a page twice, once as text.
func TestListProgrammes_ToolResultIsBounded(t *testing.T) {
	s := newService(t)
	workspaceID, _, token := s.assistedBy(perm.ProgrammesRead)
	s.Programmes(workspaceID, 210)
	for summary, want := range map[string]int{`"`: 2, "<": 4, "🜚": 3} {
		s.Exec("update resource.programmes set summary = repeat($1, 5000) where {mine}", summary)
		pages := 0
		for cursor, seen := "", 0; ; {
			a := s.post(assistant(token), calling("list_programmes", map[string]any{"limit": 200, "cursor": cursor}))
			if pages++; len(a.Body) > rest.MaxPageBytes || strings.Contains(a.Body, `\u003c`) {
				t.Errorf("%s: %d bytes, beginning %.300s", summary, len(a.Body), a.Body)
			}
			var p listPage
			if err := json.Unmarshal(a.result(t).Result.Structured, &p); err != nil || len(p.Data) == 0 ||
				p.Data[0].Summary != strings.Repeat(summary, 5000) {
				t.Fatalf("%s: %d records, %v", summary, len(p.Data), err)
			}
			seen += len(p.Data)
			if cursor = p.Meta.NextCursor; cursor == "" {
				if seen != 210 || pages != want {
					t.Errorf("%s: %d programmes in %d pages", summary, seen, pages)
				}
				break
			}
		}
	}
}
