package app

import (
	"context"
	"encoding/json"
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

// names returns the names on a page.
func (p page) names() string {
	var names []string
	for _, one := range p.Data {
		names = append(names, one.Name)
	}
	return strings.Join(names, " ")
}

func TestUpdatedSince_FiltersProgrammes(t *testing.T) {
	s := newService(t)
	workspaceID, h := s.editor()
	s.Programmes(workspaceID, 3) // created in March
	made := make([]one, 4)
	for i := range made {
		made[i] = s.create(h, fmt.Sprintf(`{"name":"%c"}`, 'A'+i))
		if len(made[i].CreatedAt) != len("2026-11-01T09:00:00.123456Z") || made[i].CreatedAt != made[i].UpdatedAt {
			t.Errorf("%+v", made[i])
		}
	}
	changed := s.do("PATCH", listPath+"/"+made[0].ID.String(), h, `{"summary":"x"}`)
	var a one
	changed.decode(t, &a)
	for query, want := range map[string]string{
		"?updatedSince=" + made[2].UpdatedAt:                       "D C A", // inclusive, newest first
		"?updatedSince=" + a.UpdatedAt:                             "A",
		"?updatedSince=9999-12-31T23:59:59.999999Z":                "",
		"?updatedSince=" + made[3].UpdatedAt + "&q=a":              "A",
		"?updatedSince=" + made[0].UpdatedAt + "&status=active":    "",
		"?updatedSince=2026-01-01T00:00:00%2B01:00":                "D C B A Programme 3 Programme 2 Programme 1",
		"?updatedSince=0001-01-01T00:00:00Z&q=programme&limit=200": "Programme 3 Programme 2 Programme 1",
	} {
		if got := s.page(h, query).names(); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	for _, query := range []string{
		"?updatedSince=", "?updatedSince=yesterday", "?updatedSince=2026-11-01",
		"?updatedSince=2026-01-01T00:00:00+01:00", "?updatedSince=1762000000",
		"?updatedSince=2026-01-01T00:00:00Z&updatedSince=2026-01-01T00:00:00Z", "?updatedSince=2026-01-01T00:00:00",
	} {
		s.get(listPath+query, h).expect(t, 400, "VALIDATION_ERROR", "").has(t, `"updatedSince"`)
	}
	cursor := s.page(h, updatedSince("2026-01-01T00:00:00Z")).Meta.NextCursor
	for _, query := range []string{
		"?cursor=" + cursor, updatedSince("2026-01-01T00:00:01Z") + "&cursor=" + cursor,
		"?updatedSince=2026-01-01T00:00:00Z&cursor=" + s.page(h, "?limit=1").Meta.NextCursor,
	} {
		s.get(listPath+query, h).wants(t, 400, `"cursor"`)
	}
}

// A programme that changes while a client reads the pages, at a position that the client has passed, is found by the
// client's next query with the newest updatedAt that it has seen.
func TestUpdatedSince_FindsChangeDuringPaging(t *testing.T) {
	s := newService(t)
	_, h := s.editor()
	made := make([]one, 5)
	for i := range made {
		made[i] = s.create(h, fmt.Sprintf(`{"name":"%c"}`, 'A'+i))
	}
	rename := func(i int, name string) {
		s.do("PATCH", listPath+"/"+made[i].ID.String(), h, `{"name":"`+name+`"}`).wants(t, 200)
	}
	query := updatedSince(made[0].UpdatedAt)
	p := s.page(h, query)
	seen := p.Data
	if p.names() != "E D" {
		t.Fatal(p.names())
	}
	rename(4, "E2") // already read
	rename(1, "B2") // not yet read
	s.create(h, `{"name":"F"}`)
	for p.Meta.NextCursor != "" {
		p = s.page(h, query+"&cursor="+p.Meta.NextCursor)
		seen = append(seen, p.Data...)
	}
	newest := ""
	for _, one := range seen {
		newest = max(newest, one.UpdatedAt)
	}
	var found []string
	for next := updatedSince(newest); ; {
		p := s.page(h, next)
		found = append(found, p.names())
		if p.Meta.NextCursor == "" {
			break
		}
		next = updatedSince(newest) + "&cursor=" + p.Meta.NextCursor
	}
	if got := strings.Join(found, " "); !strings.HasPrefix(got, "F E2") || !strings.Contains(got, "B2") {
		t.Errorf("the next query finds %s", got)
	}
}

// A poller records what it has seen of the list.
type poller struct {
	seen   map[uuid.UUID]string // id → updatedAt
	newest string
}

// pollChanges queries what was updated since the newest known updatedAt.
func (p *poller) pollChanges(s *service, h header) {
	query := url.Values{"updatedSince": {p.newest}, "limit": {"50"}}
	for {
		page := s.insistPage(h, "?"+query.Encode())
		for _, one := range page.Data {
			p.seen[one.ID] = one.UpdatedAt
			p.newest = max(p.newest, one.UpdatedAt)
		}
		if page.Meta.NextCursor == "" {
			return
		}
		query.Set("cursor", page.Meta.NextCursor)
	}
}

// pollNewest reads the list up to the newest record that it knew.
func (p *poller) pollNewest(s *service, h header) {
	known, query := p.newest, url.Values{"limit": {"50"}}
	for {
		page := s.insistPage(h, "?"+query.Encode())
		for _, one := range page.Data {
			if one.ID.String() == known {
				return
			}
			if query.Get("cursor") == "" && p.newest == known {
				p.newest = one.ID.String()
			}
			p.seen[one.ID] = one.CreatedAt
		}
		if page.Meta.NextCursor == "" {
			return
		}
		query.Set("cursor", page.Meta.NextCursor)
	}
}

// F15: during 50 concurrent writers and 5 imports, neither kind of poller misses a record or its last change.
func TestPollers_MissNothingDuringWritesAndImports(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	workspaceID, h := s.editor()
	var rows strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&rows, "Imported %d\n", i)
	}
	for range 5 {
		s.importCSV(h, "name\n"+rows.String())
	}
	var imported atomic.Bool
	var writers, pollers sync.WaitGroup
	for range 50 {
		writers.Go(func() {
			for n := 0; n < 2 || !imported.Load(); n++ {
				if a := s.insist("POST", listPath, h, `{"name":"Made"}`); a.Status == 201 {
					var made one
					a.decode(t, &made)
					s.insist("PATCH", listPath+"/"+made.ID.String(), h, `{"name":"Changed"}`)
				}
			}
		})
	}
	writers.Go(func() {
		defer imported.Store(true)
		for left := 5; left > 0; {
			if found, err := s.app.store.ProcessImport(context.Background()); err != nil {
				t.Error(err)
				return
			} else if found {
				left--
			}
		}
	})
	done := make(chan struct{})
	changes, newest := &poller{seen: map[uuid.UUID]string{}, newest: "2026-01-01T00:00:00Z"}, &poller{
		seen: map[uuid.UUID]string{},
	}
	for _, poll := range []func(){func() { changes.pollChanges(s, h) }, func() { newest.pollNewest(s, h) }} {
		pollers.Go(func() {
			for running := true; running; {
				select {
				case <-done:
					running = false // poll once more
				default:
				}
				poll()
			}
		})
	}
	writers.Wait()
	close(done)
	pollers.Wait()
	all, query := 0, "?limit=200"
	for next := query; ; {
		p := s.page(h, next)
		for _, one := range p.Data {
			all++
			if changes.seen[one.ID] != one.UpdatedAt {
				t.Errorf("%s was last seen with updatedAt %q, and has %s",
					one.Name, changes.seen[one.ID], one.UpdatedAt)
			}
			if newest.seen[one.ID] == "" {
				t.Errorf("%s created at %s was never seen by pollNewest", one.Name, one.CreatedAt)
			}
		}
		if p.Meta.NextCursor == "" {
			break
		}
		next = query + "&cursor=" + p.Meta.NextCursor
	}
	if made := s.Count("select count(*) from resource.programmes where tenant_id = $1", workspaceID); all != made ||
		made < 10_000+100 {
		t.Errorf("%d of %d programmes are listed", all, made)
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

func (s *service) insistPage(h header, query string) (p page) {
	s.t.Helper()
	a := s.insist("GET", listPath+query, h, "")
	if err := json.Unmarshal([]byte(a.Body), &p); err != nil || a.Status != 200 {
		s.t.Errorf("%s: %d %s", query, a.Status, a.Body)
	}
	return p
}

func TestUpdatedSince_FiltersSubmissions(t *testing.T) {
	s := newService(t)
	_, h := s.workspace()
	form := s.makeForm(h, allTypes)
	type record struct {
		ID                   uuid.UUID
		CreatedAt, UpdatedAt string
		FinishedAt           *string
	}
	type page struct {
		Data []record
		Meta struct{ NextCursor string }
	}
	read := func(query string) (p page) {
		t.Helper()
		a := s.get(formsPath+"/"+form.ID.String()+"/submissions"+query, h)
		a.decode(t, &p)
		a.wants(t, 200)
		return p
	}
	ids := make([]uuid.UUID, 5)
	for i := range ids {
		ids[i] = s.accepted(form).ID
	}
	kept := s.app.store.Engage(nil)
	finish := func(i int) {
		t.Helper()
		if err := kept.Process(t.Context(), uuid.Nil, ids[i]); err != nil {
			t.Fatal(err)
		}
	}
	order := func(p page) (places []int) {
		for _, r := range p.Data {
			places = append(places, slices.Index(ids, r.ID))
			if want := r.FinishedAt; len(r.UpdatedAt) != 27 || len(r.CreatedAt) != 27 ||
				want != nil && *want != r.UpdatedAt || want == nil && r.CreatedAt != r.UpdatedAt {
				t.Errorf("%+v", r)
			}
		}
		return places
	}
	all := read("")
	if got := order(all); !slices.Equal(got, []int{4, 3, 2, 1, 0}) {
		t.Fatalf("%v", got)
	}
	since := all.Data[0].UpdatedAt // of 4
	finish(0)
	finish(2)
	p := read(updatedSince(since))
	if got := order(p); !slices.Equal(got, []int{4, 2}) || p.Meta.NextCursor == "" {
		t.Fatalf("%v", got)
	}
	finish(4) // already read
	finish(1) // not yet read
	last := read(updatedSince(since) + "&cursor=" + p.Meta.NextCursor)
	if got := order(last); !slices.Equal(got, []int{0}) || last.Meta.NextCursor != "" {
		t.Errorf("%v", got)
	}
	newest := max(p.Data[0].UpdatedAt, p.Data[1].UpdatedAt, last.Data[0].UpdatedAt)
	if got := order(read("?updatedSince=" + newest)); !slices.Equal(got, []int{4, 2, 1}) {
		t.Errorf("%v", got)
	}
	for _, query := range []string{
		"?updatedSince=x", "?updatedSince=", updatedSince(since) + "&cursor=" + p.Meta.NextCursor + "x",
		"?cursor=" + p.Meta.NextCursor, updatedSince(newest) + "&cursor=" + p.Meta.NextCursor,
	} {
		s.get(formsPath+"/"+form.ID.String()+"/submissions"+query, h).wants(t, 400)
	}
	if a := s.get(formsPath+"?updatedSince=x", h); a.Status == 500 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}
