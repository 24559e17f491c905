package app

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/devkit/await"
)

// updatedSince returns the query for records updated at the time or later, in pages of two.
func updatedSince(text string) string { return "?limit=2&updatedSince=" + url.QueryEscape(text) }

func TestUpdatedSince_FiltersProgrammes(t *testing.T) {
	s, h := newEditor(t)
	s.Programmes(h.workspace(), 3) // created in March
	made := make([]one, 4)
	for i := range made {
		made[i] = s.create(h, fmt.Sprintf(`{"name":"%c"}`, 'A'+i))
		if len(made[i].CreatedAt) != len("2026-11-01T09:00:00.123456Z") || made[i].CreatedAt != made[i].UpdatedAt {
			t.Errorf("%+v", made[i])
		}
	}
	a := decoded[one](t, s.do("PATCH", listPath+"/"+made[0].ID.String(), h, `{"summary":"x"}`))
	for query, want := range map[string]string{
		"?updatedSince=" + made[2].UpdatedAt:                       "D C A", // inclusive, newest first
		"?updatedSince=" + a.UpdatedAt:                             "A",
		"?updatedSince=9999-12-31T23:59:59.999999Z":                "",
		"?updatedSince=" + made[3].UpdatedAt + "&q=a":              "A",
		"?updatedSince=" + made[0].UpdatedAt + "&status=active":    "",
		"?updatedSince=2026-01-01T00:00:00%2B01:00":                "D C B A Programme 3 Programme 2 Programme 1",
		"?updatedSince=0001-01-01T00:00:00Z&q=programme&limit=200": "Programme 3 Programme 2 Programme 1",
	} {
		if got := names(s.page(h, query)); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	for _, query := range []string{
		"?updatedSince=", "?updatedSince=yesterday", "?updatedSince=2026-11-01",
		"?updatedSince=2026-01-01T00:00:00+01:00", "?updatedSince=1762000000",
		"?updatedSince=2026-01-01T00:00:00Z&updatedSince=2026-01-01T00:00:00Z", "?updatedSince=2026-01-01T00:00:00",
	} {
		s.get(listPath+query, h).names(t, "updatedSince")
	}
	cursor := s.page(h, updatedSince("2026-01-01T00:00:00Z")).Meta.NextCursor
	for _, query := range []string{
		"?cursor=" + cursor, updatedSince("2026-01-01T00:00:01Z") + "&cursor=" + cursor,
		"?updatedSince=2026-01-01T00:00:00Z&cursor=" + s.page(h, "?limit=1").Meta.NextCursor,
	} {
		s.get(listPath+query, h).wants(t, 400, `"cursor"`)
	}
}

// F15: during concurrent writes and two imports, a client that polls with updatedSince misses no record and no change.
func TestPollers_MissNothingDuringWritesAndImports(t *testing.T) {
	s := newOwn(t)
	h := s.editor()
	const imports, rows, writers = 2, 600, 20 // the store inserts so many rows before it locks the list
	for range imports {
		s.importCSV(h, "name\n"+strings.Repeat("Imported\n", rows))
	}
	var imported atomic.Bool
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for n := 0; n < 1 || !imported.Load(); n++ {
				if a := s.insist("POST", listPath, h, `{"name":"Made"}`); a.Status == 201 {
					path := listPath + "/" + decoded[one](t, a).ID.String()
					s.insist("PATCH", path, h, `{"name":"Changed"}`)
				}
			}
		})
	}
	group.Go(func() {
		defer imported.Store(true)
		for left := imports; left > 0; {
			if found, err := s.app.store.ProcessImport(context.Background()); err != nil {
				t.Error(err)
				return
			} else if found {
				left--
			}
		}
	})
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	seen, newest := map[uuid.UUID]string{}, "2026-01-01T00:00:00Z"
	for running := true; running; {
		select {
		case <-done:
			running = false // poll once more
		default:
		}
		query := url.Values{"updatedSince": {newest}, "limit": {"50"}}
		for more := true; more; more = query.Get("cursor") != "" {
			p := decoded[page](t, s.insist("GET", listPath+"?"+query.Encode(), h, "").wants(t, 200))
			for _, one := range p.Data {
				seen[one.ID], newest = one.UpdatedAt, max(newest, one.UpdatedAt)
			}
			query.Set("cursor", p.Meta.NextCursor)
		}
	}
	all := recordsOf[one](s, listPath+"?limit=200", h)
	for _, one := range all {
		if seen[one.ID] != one.UpdatedAt {
			t.Errorf("%s was last seen with updatedAt %q, and has %s", one.Name, seen[one.ID], one.UpdatedAt)
		}
	}
	made := s.Count("select count(*) from resource.programmes where tenant_id = $1", h.workspace())
	if len(all) != made || made < imports*rows+writers {
		t.Errorf("%d of %d programmes are listed", len(all), made)
	}
}

// insist repeats a request while the service asks for a retry.
func (s *service) insist(method, path string, h header, body string) answer {
	s.t.Helper()
	for end := time.Now().Add(await.Long); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if a := s.do(method, path, h, body); a.Status != 503 && a.Status != 429 {
			return a
		}
	}
	s.t.Errorf("%s %s: no response but retries", method, path)
	return answer{}
}

func TestUpdatedSince_FiltersSubmissions(t *testing.T) {
	s, h := newWorkspace(t)
	form := s.makeForm(h, allTypes)
	type record struct {
		ID                   uuid.UUID
		CreatedAt, UpdatedAt string
		FinishedAt           *string
	}
	path := form.own() + "/submissions"
	read := func(query string) paged[record] { t.Helper(); return pageOf[record](s, path+query, h) }
	ids := make([]uuid.UUID, 5)
	for i := range ids {
		ids[i] = s.accepted(form).ID
	}
	finish := func(i int) { t.Helper(); s.processOne(ids[i]) }
	wants := func(p paged[record], more bool, want ...int) {
		t.Helper()
		var places []int
		for _, r := range p.Data {
			places = append(places, slices.Index(ids, r.ID))
			if end := r.FinishedAt; len(r.UpdatedAt) != 27 || len(r.CreatedAt) != 27 ||
				end != nil && *end != r.UpdatedAt || end == nil && r.CreatedAt != r.UpdatedAt {
				t.Errorf("%+v", r)
			}
		}
		if !slices.Equal(places, want) || (p.Meta.NextCursor != "") != more {
			t.Fatalf("%v, want %v, and more pages: %v", places, want, more)
		}
	}
	all := read("?")
	wants(all, false, 4, 3, 2, 1, 0)
	since := all.Data[0].UpdatedAt // of 4
	finish(0)
	finish(2)
	p := read(updatedSince(since))
	wants(p, true, 4, 2)
	finish(4) // already read
	finish(1) // not yet read
	last := read(updatedSince(since) + "&cursor=" + p.Meta.NextCursor)
	wants(last, false, 0)
	newest := max(p.Data[0].UpdatedAt, p.Data[1].UpdatedAt, last.Data[0].UpdatedAt)
	wants(read("?updatedSince="+newest), false, 4, 2, 1)
	for _, query := range []string{
		"?updatedSince=x", "?updatedSince=", updatedSince(since) + "&cursor=" + p.Meta.NextCursor + "x",
		"?cursor=" + p.Meta.NextCursor, updatedSince(newest) + "&cursor=" + p.Meta.NextCursor,
	} {
		s.get(path+query, h).wants(t, 400)
	}
}

// names returns the names on a page.
func names(p page) string {
	var all []string
	for _, one := range p.Data {
		all = append(all, one.Name)
	}
	return strings.Join(all, " ")
}
