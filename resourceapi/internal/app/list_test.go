package app

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"

	store "github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
)

type page struct {
	Data []struct {
		ID                    uuid.UUID
		Name, Summary, Status string
		StartsOn, EndsOn      *string
		CreatedAt, UpdatedAt  string
	}
	Meta struct {
		Count      int
		NextCursor string
	}
}

func (s *service) page(h header, query string) page {
	s.t.Helper()
	a := s.get(listPath+query, h)
	if a.Status != 200 {
		s.t.Fatalf("%s: %d %s", query, a.Status, a.Body)
	}
	var p page
	a.decode(s.t, &p)
	if p.Meta.Count != len(p.Data) {
		s.t.Errorf("%s: count %d of %d", query, p.Meta.Count, len(p.Data))
	}
	return p
}

// all follows the cursors from the start and returns the names in order.
func (s *service) all(h header, query string) []string {
	s.t.Helper()
	var names []string
	for next := query; ; {
		p := s.page(h, next)
		for _, one := range p.Data {
			names = append(names, one.Name)
		}
		if p.Meta.NextCursor == "" {
			return names
		}
		if len(names) > 10_000 {
			s.t.Fatal("the list does not end")
		}
		next = query + "&cursor=" + p.Meta.NextCursor
	}
}

func TestList_EmptyWorkspace(t *testing.T) {
	s := newService(t)
	workspaceID, pat := s.reader()
	a := s.get(listPath, as(pat, workspaceID))
	if strings.TrimSpace(a.Body) != `{"data":[],"meta":{"count":0}}` || a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	a.header(t, "Content-Type", "application/json").
		header(t, "Cache-Control", "no-store").
		header(t, "X-Content-Type-Options", "nosniff").
		header(t, "Access-Control-Allow-Origin", "")
	if head := s.do("HEAD", listPath, as(pat, workspaceID), ""); head.Status != 200 || head.Body != "" {
		t.Errorf("HEAD: %d %s", head.Status, head.Body)
	}
}

func TestList_RecordHasFieldsOfContract(t *testing.T) {
	s := newService(t)
	workspaceID, pat := s.reader()
	id := s.Programmes(workspaceID, 1)[0]
	s.Exec(
		`update resource.programmes set summary = 'Food, <warmth> & company', starts_on = '2026-04-01',
			created_at = '2026-03-01 09:00:00.123456+00' where {mine}`,
	)
	want := `{"data":[{"id":"` + id.String() + `","name":"Programme 1","summary":"Food, <warmth> & company",` +
		`"status":"draft","startsOn":"2026-04-01","endsOn":null,"createdAt":"2026-03-01T09:00:00.123456Z",` +
		`"updatedAt":"2026-03-01T09:00:00.000000Z"}],"meta":{"count":1}}`
	if a := s.get(listPath, as(pat, workspaceID)); strings.TrimSpace(a.Body) != want {
		t.Errorf("%s\nwant %s", a.Body, want)
	}
}

func TestP3_PagesHaveEveryProgrammeOnceNewestFirst(t *testing.T) {
	s := newService(t)
	workspaceID, pat := s.reader()
	other, _ := s.reader()
	s.Programmes(workspaceID, 230)
	s.Programmes(other, 40)
	h := as(pat, workspaceID)
	want := make([]string, 230)
	for i := range want {
		want[i] = fmt.Sprintf("Programme %d", 230-i)
	}
	for _, query := range []string{"?", "?limit=1000", "?limit=200", "?limit=7", "?limit=115", "?limit=1", "?&"} {
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
	s.Exec(
		"delete from resource.programmes where tenant_id = $1 and name not in ('Programme 1', 'Programme 2')",
		workspaceID,
	)
	if p := s.page(h, "?limit=2"); p.Meta.Count != 2 || p.Meta.NextCursor != "" {
		t.Errorf("a full last page has a cursor: %+v", p.Meta)
	}
}

func TestP3_PagesAreStableDuringInserts(t *testing.T) {
	s := newService(t)
	workspaceID, pat := s.reader()
	h := as(pat, workspaceID)
	s.Programmes(workspaceID, 10)
	// Equal times, ordered by id, and times that differ by one microsecond.
	s.Exec(
		`update resource.programmes set created_at = '2026-03-01 09:00:00.000001+00'
			where {mine} and name in ('Programme 4', 'Programme 5', 'Programme 6')`,
	)
	s.Exec(`update resource.programmes set created_at = '2026-03-01 09:00:00.000002+00'
		where {mine} and name = 'Programme 7'`)
	want := s.all(h, "?limit=200")
	if len(want) != 10 || !slices.Equal(want[:3], []string{"Programme 10", "Programme 9", "Programme 8"}) {
		t.Fatalf("%v", want)
	}
	var got []string
	cursor := ""
	for {
		p := s.page(h, "?limit=1"+cursor)
		for _, one := range p.Data {
			got = append(got, one.Name)
		}
		if p.Meta.NextCursor == "" {
			break
		}
		cursor = "&cursor=" + p.Meta.NextCursor
		s.Exec(
			"insert into resource.programmes (id, tenant_id, name, status) values (gen_random_uuid(), $1, 'New', "+
				"'draft')",
			workspaceID,
		)
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
	workspaceID, pat := s.reader()
	h := as(pat, workspaceID)
	s.Programmes(workspaceID, 8)
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
		s.Exec(
			"update resource.programmes set name = $2, summary = $3, status = $4 where {mine} and name = $1",
			fmt.Sprintf("Programme %d", i+1),
			p.name,
			p.summary,
			p.status,
		)
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
		query = strings.NewReplacer(" ", "%20", `\`, "%5C", "é", url.QueryEscape("é"), "É", url.QueryEscape("É")).
			Replace(query)
		query = escapeNonASCII(query)
		for _, size := range []string{"?limit=200&", "?limit=1&"} {
			if got := s.all(h, size+query); !slices.Equal(got, want) {
				t.Errorf("%s%s: %q, want %q", size, query, got, want)
			}
		}
	}
}

// A search may read every programme, so it must not run for callers without permission.
func TestSearch_RunsOnlyForPermittedCallers(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	workspaceID, pat := s.reader()
	other, stranger := s.reader()
	unknown := s.unknownPAT()
	s.Exec("begin")
	s.Exec("lock table resource.programmes in access exclusive mode")
	s.get(listPath+"?q=a", as(unknown, workspaceID)).expect(t, 401, "UNAUTHENTICATED", "invalid_token")
	s.get(listPath+"?q=a", as(stranger, workspaceID)).expect(t, 403, "FORBIDDEN", "")
	s.get(listPath+"?q=a", as(pat, other)).expect(t, 403, "FORBIDDEN", "")
	s.get(listPath+"?q=a", as(pat, workspaceID)).expect(t, 503, "UNAVAILABLE", "")
	s.Exec("rollback")
}

func escapeNonASCII(text string) string {
	var out strings.Builder
	for _, b := range []byte(text) {
		if b >= 0x80 {
			fmt.Fprintf(&out, "%%%02X", b)
		} else {
			out.WriteByte(b)
		}
	}
	return out.String()
}

// Step 5: parameters and cursors.
func TestList_RefusesInvalidParameterOrCursor(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(perm.ProgrammesRead)
	pat := s.PAT(workspaceID, user, perm.ProgrammesRead).Reveal()
	h := as(pat, workspaceID)
	s.Programmes(workspaceID, 9)
	cursor := s.page(h, "?limit=2").Meta.NextCursor
	filtered := s.page(h, "?limit=2&status=draft").Meta.NextCursor
	searched := s.page(h, "?limit=2&q=prog").Meta.NextCursor
	s.Exec("update resource.programmes set summary = 'no draft' where {mine}")
	named := s.page(h, "?limit=2&q=draft").Meta.NextCursor // with the value of a status

	other, _ := s.reader()
	s.Member(other, user, perm.ProgrammesRead)
	s.Programmes(other, 9)
	foreign := s.page(as(s.PAT(other, user, perm.ProgrammesRead).Reveal(), other), "?limit=2").Meta.NextCursor

	last := cursor[:len(cursor)-2] + "AA"
	for _, query := range []string{
		"limit=0", "limit=-1", "limit=", "limit", "limit=ten", "limit=1.5", "limit=1e1", "limit=+5", "limit=%2B5",
		"limit=5%20", "limit=0x10", "limit=99999999999999999999x", "limit=%D9%A5", "limit=5&limit=5", "limit=%zz",
		"status=", "status=Active", "status=gone", "status=active,draft", "status=active&status=draft", "q=a&q=a",
		"q=%ff", "q=%00", "q=" + strings.Repeat("a", 401), "cursor=", "cursor", "cursor=x",
		"cursor=" + cursor + "&cursor=" + cursor, "cursor=" + last, "cursor=" + cursor + "=", "cursor=" + cursor + "A",
		"cursor=" + cursor[:len(cursor)-1], "cursor=%20" + cursor, "cursor=" + strings.Repeat("A", 5000), "cursor=MTIz",
		"cursor=" + foreign, "cursor=" + cursor + "&status=draft", "cursor=" + cursor + "&q=prog", "cursor=" + filtered,
		"cursor=" + filtered + "&status=active", "cursor=" + searched + "&q=pro", "cursor=" + cursor + "&limit=0",
		"cursor=" + filtered + "&q=draft", "cursor=" + searched + "&q=prog&status=draft",
		"cursor=" + searched + "&status=draft", "cursor=" + named + "&status=draft", "cursor=" + filtered + "&q=prog",
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
	s.get(listPath+"?limit=0", as(pat, other)).expect(t, 403, "FORBIDDEN", "")
}
