package app

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/contract/perm"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	store "github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
)

// A page is a page of programmes.
type page = paged[one]

func (s *service) page(h header, query string) page {
	s.t.Helper()
	return pageOf[one](s, listPath+query, h)
}

// all follows the cursors from the start and returns the names in order.
func (s *service) all(h header, query string) (names []string) {
	s.t.Helper()
	for _, one := range recordsOf[one](s, listPath+query, h) {
		names = append(names, one.Name)
	}
	return names
}

func TestList_EmptyWorkspace(t *testing.T) {
	s, h := newReader(t)
	a := s.get(listPath, h)
	a.wants(t, 200).is(t, `{"data":[],"meta":{"count":0}}`)
	a.header(t, "Content-Type", "application/json").
		header(t, "Cache-Control", "no-store").
		header(t, "X-Content-Type-Options", "nosniff").
		header(t, "Access-Control-Allow-Origin", "")
	s.do("HEAD", listPath, h, "").wants(t, 200).is(t, "")
}

func TestList_RecordHasFieldsOfContract(t *testing.T) {
	s, h := newReader(t)
	id := s.Programmes(h.workspace(), 1)[0]
	s.Exec(`update resource.programmes set summary = 'Food, <warmth> & company', starts_on = '2026-04-01',
		created_at = '2026-03-01 09:00:00.123456+00' where {mine}`)
	want := `{"data":[{"id":"` + id.String() + `","name":"Programme 1","summary":"Food, <warmth> & company",` +
		`"status":"draft","startsOn":"2026-04-01","endsOn":null,"createdAt":"2026-03-01T09:00:00.123456Z",` +
		`"updatedAt":"2026-03-01T09:00:00.000000Z"}],"meta":{"count":1}}`
	s.get(listPath, h).is(t, want)
}

func TestP3_PagesHaveEveryProgrammeOnceNewestFirst(t *testing.T) {
	s, h := newReader(t)
	other := s.reader()
	s.Programmes(h.workspace(), 230)
	s.Programmes(other.workspace(), 40)
	want := make([]string, 230)
	for i := range want {
		want[i] = fmt.Sprintf("Programme %d", 230-i)
	}
	for _, query := range []string{"?", "?limit=1000", "?limit=200", "?limit=7", "?limit=115", "?&"} {
		if got := s.all(h, query); !slices.Equal(got, want) {
			t.Errorf("%s: %d programmes, not each once in order", query, len(got))
		}
	}
	for query, count := range map[string]int{
		"":                               50,
		"?limit=200":                     200,
		"?limit=201":                     200,
		"?limit=99999999999999999999999": 200,
		"?limit=0000051":                 51,
		"?limit=1":                       1,
	} {
		if p := s.page(h, query); p.Meta.Count != count || p.Meta.NextCursor == "" {
			t.Errorf("%s: %d", query, p.Meta.Count)
		}
	}
	s.Exec("delete from resource.programmes where {mine} and name not in ('Programme 1', 'Programme 2')")
	if p := s.page(h, "?limit=2"); p.Meta.Count != 2 || p.Meta.NextCursor != "" {
		t.Errorf("a full last page has a cursor: %+v", p.Meta)
	}
}

func TestP3_PagesAreStableDuringInserts(t *testing.T) {
	s, h := newReader(t)
	s.Programmes(h.workspace(), 10)
	// Equal times, ordered by id, and times that differ by one microsecond.
	s.Exec(`update resource.programmes set created_at = '2026-03-01 09:00:00.000001+00'
		where {mine} and name in ('Programme 4', 'Programme 5', 'Programme 6')`)
	s.Exec(`update resource.programmes set created_at = '2026-03-01 09:00:00.000002+00'
		where {mine} and name = 'Programme 7'`)
	want := s.all(h, "?limit=200")
	if len(want) != 10 || !slices.Equal(want[:3], []string{"Programme 10", "Programme 9", "Programme 8"}) {
		t.Fatalf("%v", want)
	}
	var got []string
	for p := range pagesOf[one](s, listPath+"?limit=1", h) {
		got = append(got, p.Data[0].Name)
		s.Exec(`insert into resource.programmes (id, tenant_id, name, status)
			values (gen_random_uuid(), $1, 'New', 'draft')`, h.workspace())
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
}

func TestList_Filters(t *testing.T) {
	t.Parallel()
	t.Run("without the search index", func(t *testing.T) { checkFilters(t, newService(t)) })
	t.Run("with the search index", func(t *testing.T) {
		s := ownService(t)
		s.indexSearches()
		// In such a small table the planner prefers a sequential scan.
		s.Exec("do $$ begin execute format('alter database %I set enable_seqscan = off', current_database()); end $$")
		s.Exec("drop index resource.programmes_page, resource.programmes_page_by_status")
		checkFilters(t, s)
	})
}

// indexSearches creates the search index, like migrate.
func (s *service) indexSearches() {
	s.t.Helper()
	if created, err := store.IndexSearches(s.t.Context(), s.Database.Owner); err != nil || !created {
		s.t.Fatalf("created %t, %v", created, err)
	}
}

func checkFilters(t *testing.T, s *service) {
	h := s.reader()
	s.Programmes(h.workspace(), 8)
	for i, p := range []struct{ name, summary, status string }{
		{"Warm Homes", "Advice on heating", "active"},
		{"Youth Café", "A place after school", "active"},
		{"100% Fed", "Meals", "completed"},
		{"Debt_advice", "One to one", "archived"},
		{`Back\slash`, "", "draft"},
		{"Школа", "Ukrainian lessons", "draft"},
		{"ΚΟΣΜΟΣ", "Straße, STRAẞE 5 Å", "completed"},
		{"Garden", "HOMES for bees", "draft"},
	} {
		s.Exec("update resource.programmes set name = $2, summary = $3, status = $4 where {mine} and name = $1",
			fmt.Sprintf("Programme %d", i+1), p.name, p.summary, p.status)
	}
	for query, want := range map[string][]string{
		"status=active":        {"Youth Café", "Warm Homes"},
		"status=completed":     {"ΚΟΣΜΟΣ", "100% Fed"},
		"q=ΚΟΣ":                {"ΚΟΣΜΟΣ"},
		"q=κόσμος":             nil,
		"q=κοσμος":             {"ΚΟΣΜΟΣ"},
		"q=STRASSE":            {"ΚΟΣΜΟΣ"},
		"q=straße 5":           {"ΚΟΣΜΟΣ"},
		"q=STRAẞE,":            {"ΚΟΣΜΟΣ"},
		"q=å":                  {"ΚΟΣΜΟΣ"},
		"q=homes":              {"Garden", "Warm Homes"},
		"q=HOMES&status=draft": {"Garden"},
		"q=CAFÉ":               {"Youth Café"},
		"q=шКОЛА":              {"Школа"},
		"q=%25":                {"100% Fed"},
		"q=_":                  {"Debt_advice"},
		`q=\`:                  {`Back\slash`},
		"q=':select":           nil,
		"q=100+percent":        nil,
		"q=place after":        {"Youth Café"},
		"q=": { // filters nothing
			"Garden", "ΚΟΣΜΟΣ", "Школа", `Back\slash`, "Debt_advice", "100% Fed", "Youth Café", "Warm Homes",
		},
	} {
		query = orFail(url.ParseQuery(query))(t).Encode()
		for _, size := range []string{"?limit=200&", "?limit=1&"} {
			if got := s.all(h, size+query); !slices.Equal(got, want) {
				t.Errorf("%s%s: %q, want %q", size, query, got, want)
			}
		}
	}
	if got := s.all(h, "?q=place%20after"); !slices.Equal(got, []string{"Youth Café"}) { // Encode writes a +
		t.Errorf("a space as %%20: %q", got)
	}
}

// Step 5: parameters and cursors.
func TestList_RefusesInvalidParameterOrCursor(t *testing.T) {
	s, h := newReader(t)
	s.Programmes(h.workspace(), 9)
	cursor := s.page(h, "?limit=2").Meta.NextCursor
	filtered := s.page(h, "?limit=2&status=draft").Meta.NextCursor
	searched := s.page(h, "?limit=2&q=prog").Meta.NextCursor

	other := s.reader()
	s.Programmes(other.workspace(), 9)
	foreign := s.page(other, "?limit=2").Meta.NextCursor

	for _, query := range []string{
		"limit=0", "limit=-1", "limit=", "limit", "limit=ten", "limit=1.5", "limit=1e1", "limit=+5", "limit=%2B5",
		"limit=5%20", "limit=0x10", "limit=99999999999999999999x", "limit=%D9%A5", "limit=5&limit=5", "limit=%zz",
		"status=", "status=Active", "status=gone", "status=active,draft", "status=active&status=draft", "q=a&q=a",
		"q=%ff", "q=%00", "q=" + strings.Repeat("a", 401), "cursor=", "cursor", "cursor=x",
		"cursor=" + cursor + "&cursor=" + cursor, "cursor=" + cursor + "A", "cursor=" + strings.Repeat("A", 5000),
		"cursor=" + foreign, "cursor=" + cursor + "&status=draft", "cursor=" + cursor + "&q=prog", "cursor=" + filtered,
		"cursor=" + cursor + "&limit=0",
		"Limit=5", "limits=5", "%zz=1", "x=a;b", "x=1&x=2", "=",
	} {
		a := s.get(listPath+"?"+query, h)
		a.expect(t, 400, "VALIDATION_ERROR", "")
	}
	for _, query := range []string{
		"cursor=" + cursor, "cursor=" + cursor + "&limit=1", "cursor=" + filtered + "&status=draft",
		"cursor=" + searched + "&q=prog", "&&", "cursor=" + cursor + "&q=",
	} {
		s.get(listPath+"?"+query, h).wants(t, 200)
	}
	// The limit is no filter: another page size continues after the cursor's page.
	if whole, next := s.page(h, ""), s.page(h, "?limit=1&cursor="+cursor); next.Data[0].ID != whole.Data[2].ID {
		t.Errorf("%s follows the first two of %v", next.Data[0].Name, whole.Data)
	}
	// The credential is checked before the parameters.
	s.get(listPath+"?limit=0", nil).expect(t, 401, "UNAUTHENTICATED", "none")
	s.get(listPath+"?limit=0", as(h.token(), other.workspace())).expect(t, 403, "FORBIDDEN", "")
}

// membersOf returns the names of the members of the first record of a list.
func membersOf(t *testing.T, a answer) []string {
	t.Helper()
	var page struct{ Data []map[string]json.RawMessage }
	a.decode(t, &page)
	if a.Status != 200 || len(page.Data) == 0 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	return slices.Sorted(maps.Keys(page.Data[0]))
}

func TestFields_SelectMembersOfRecords(t *testing.T) {
	s := newService(t)
	ofForms := s.workspace()
	ofProgrammes := s.editor()
	s.Programmes(ofProgrammes.workspace(), 3)
	f := s.makeForm(ofForms, allTypes)
	s.accepted(f)
	for path, h := range map[string]header{
		listPath:                 ofProgrammes,
		formsPath:                ofForms,
		f.own() + "/submissions": ofForms,
	} {
		every := membersOf(t, s.get(path, h))
		for _, name := range every {
			if got := membersOf(t, s.get(path+"?fields="+name, h)); !slices.Equal(got, []string{name}) {
				t.Errorf("%s?fields=%s: %v", path, name, got)
			}
		}
		if got := membersOf(t, s.get(path+"?fields="+strings.Join(every, ","), h)); !slices.Equal(got, every) {
			t.Errorf("%s: %v, want %v", path, got, every)
		}
		s.get(path+"?fields=id,other", h).names(t, "fields").has(t, `other`)
	}
	all := slices.Sorted(slices.Values(programme.Fields()))
	s.create(ofProgrammes, `{"name":"x","externalId":"crm/7"}`)
	if every := membersOf(t, s.get(listPath, ofProgrammes)); !slices.Equal(every, all) {
		t.Errorf("programme.Fields: %v, want %v", all, every)
	}
	first := s.get(listPath+"?limit=2&fields=id", ofProgrammes)
	var page struct {
		Meta struct{ NextCursor string }
	}
	first.decode(t, &page)
	next := s.get(listPath+"?limit=2&fields=name&cursor="+page.Meta.NextCursor, ofProgrammes)
	if !slices.Equal(membersOf(t, next), []string{"name"}) || page.Meta.NextCursor == "" {
		t.Errorf("the second page: %s", next.Body)
	}
}

func TestCompress_RecordsAndToolResults(t *testing.T) {
	s := newService(t)
	workspaceID, user, token := s.assistedBy(perm.ProgrammesRead)
	s.Programmes(workspaceID, 20)
	h := s.holding(workspaceID, user, perm.ProgrammesRead)
	for _, c := range []struct {
		method, path string
		h            header
		body         string
	}{
		{"GET", listPath, h, ""},
		{"GET", "/v1/openapi.json", h, ""},
		{"POST", mcpPath, assistant(token), calling("list_programmes", map[string]any{})},
	} {
		encoded := func(encoding, want string) answer {
			t.Helper()
			return s.do(c.method, c.path, c.h.with("Accept-Encoding", encoding), c.body).
				wants(t, 200).header(t, "Content-Encoding", want).hasInHeader(t, "Vary", "Accept-Encoding")
		}
		packed := encoded("gzip", "gzip")
		unpacked := orFail(gzip.NewReader(strings.NewReader(packed.Body)))(t)
		packed.Body = string(orFail(io.ReadAll(unpacked))(t))
		packed.is(t, encoded("identity", "").Body)
	}
}
