package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

func TestForms_CreateAndListNewestFirst(t *testing.T) {
	s := newService(t)
	_, h := s.workspace()
	s.get(formsPath, h).wants(t, 200).is(t, `{"data":[],"meta":{"count":0}}`)
	var made, seen []uuid.UUID
	for range 5 {
		made = append(made, s.makeForm(h, allTypes).ID)
	}
	_, other := s.workspace()
	s.makeForm(other, allTypes)
	type form struct {
		ID              uuid.UUID
		EmbedKey, Title string
		Fields          []map[string]any
		AllowedOrigins  []string
		Enabled         bool
		CreatedAt       time.Time
	}
	for p := range pagesOf[form](s, formsPath+"?limit=2", h) {
		for _, f := range p.Data {
			seen = append(seen, f.ID)
			if len(p.Data) > 2 || f.Title != "Volunteer with us" || len(f.Fields) != 10 ||
				f.AllowedOrigins[0] != goodOrigin || !f.Enabled || f.CreatedAt.IsZero() || f.EmbedKey == "" {
				t.Errorf("%+v", f)
			}
		}
	}
	if slices.Reverse(seen); !slices.Equal(seen, made) {
		t.Errorf("%v, want the newest of %v first", seen, made)
	}
	for _, query := range []string{
		"?limit=0", "?limit=-1", "?limit=x", "?limit=", "?cursor=", "?cursor=x", "?limit=1&limit=2", "?limit=%zz",
	} {
		s.get(formsPath+query, h).expect(t, 400, "VALIDATION_ERROR", "")
	}
	s.get(formsPath+"?limit=100000", h).wants(t, 200)
}

func TestForms_EachRouteRequiresItsPermission(t *testing.T) {
	s := newService(t)
	workspaceID, h := s.workspace()
	f := s.makeForm(h, allTypes)
	routes := map[perm.Permission]func(header) answer{
		perm.EngageReadForms:       func(h header) answer { return s.get(formsPath, h) },
		perm.EngageWriteForms:      func(h header) answer { return s.do("POST", formsPath, h.json(), allTypes) },
		perm.EngageReadSubmissions: func(h header) answer { return s.get(f.own()+"/submissions", h) },
	}
	for held := range routes {
		h := s.holder(workspaceID, held)
		for needed, call := range routes {
			if a := call(h); needed != held {
				a.wants(t, 403)
			} else if a.Status >= 300 {
				a.fail(t, "what "+string(held)+" permits")
			}
		}
	}
}

func TestForms_RefusesInvalidDefinition(t *testing.T) {
	s := newService(t)
	_, h := s.workspace()
	field := func(members string) string {
		return `{"title":"T","allowedOrigins":[],"fields":[{"name":"a","label":"A","type":"text"},{` + members + `}]}`
	}
	origin := func(o string) string {
		return fmt.Sprintf(`{"title":"T","allowedOrigins":[%q],"fields":[{"name":"a","label":"A","type":"text"}]}`, o)
	}
	fields := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`{"name":"f%d","label":"F","type":"text"}`, i))
		}
		return `{"title":"T","allowedOrigins":[],"fields":[` + strings.Join(all, ",") + `]}`
	}
	options := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("%q", fmt.Sprint("option ", i)))
		}
		return field(`"name":"b","label":"B","type":"select","options":[` + strings.Join(all, ",") + `]`)
	}
	const rest = `"fields":[{"name":"a","label":"A","type":"text"}],"allowedOrigins":[]}`
	for body, wrong := range map[string]string{
		`{` + rest:             "title",
		`{"title":" ",` + rest: "title",
		`{"title":"` + strings.Repeat("t", 201) + `",` + rest: "title",
		`{"title":"T","allowedOrigins":[]}`:                   "fields",
		`{"title":"T","allowedOrigins":[],"fields":null}`:     "fields",
		fields(0):  "fields",
		fields(51): "fields",
		`{"title":"T","allowedOrigins":[],"fields":["a"]}`:                          "fields[0]",
		`{"title":"T","fields":[{"name":"a","label":"A","type":"text"}]}`:           "allowedOrigins",
		field(`"name":"a","label":"B","type":"text"`):                               "fields[1].name",
		field(`"name":"b c","label":"B","type":"text"`):                             "fields[1].name",
		field(`"name":"` + strings.Repeat("n", 65) + `","label":"B","type":"text"`): "fields[1].name",
		field(`"label":"B","type":"text"`):                                          "fields[1].name",
		field(`"name":"b","label":"","type":"text"`):                                "fields[1].label",
		field(`"name":"b","label":"B","type":"file"`):                               "fields[1].type",
		field(`"name":"b","label":"B","type":"text","required":"yes"`):              "fields[1].required",
		field(`"name":"b","label":"B","type":"text","options":["x"]`):               "fields[1].options",
		field(`"name":"b","label":"B","type":"select"`):                             "fields[1].options",
		field(`"name":"b","label":"B","type":"select","options":[]`):                "fields[1].options",
		field(`"name":"b","label":"B","type":"select","options":["x","x"]`):         "fields[1].options",
		field(`"name":"b","label":"B","type":"select","options":["x",null]`):        "fields[1].options",
		options(101):                      "fields[1].options",
		origin("*"):                       "allowedOrigins[0]",
		origin("null"):                    "allowedOrigins[0]",
		origin("https://a.example/"):      "allowedOrigins[0]",
		origin("https://A.example"):       "allowedOrigins[0]",
		origin("https://a.example:443"):   "allowedOrigins[0]",
		origin("https://a.example:0443"):  "allowedOrigins[0]",
		origin("https://*.example"):       "allowedOrigins[0]",
		origin("https://a.example;x"):     "allowedOrigins[0]",
		origin("https://a.example 'self"): "allowedOrigins[0]",
		origin("ftp://a.example"):         "allowedOrigins[0]",
		origin("https://u@a.example"):     "allowedOrigins[0]",
		origin("https://"):                "allowedOrigins[0]",
		origin("https://a.example:99999"): "allowedOrigins[0]",
	} {
		if problems := s.do("POST", formsPath, h, body).fields(t); problems[wrong] == "" {
			t.Errorf("%.120s: %v", body, problems)
		}
	}
	s.wantsRows(0, "resource.forms", "")
	for _, o := range []string{
		"https://a.example", "http://a-b.c.example:8080", "http://localhost:3000", "http://127.0.0.1",
		"http://[::1]:8080",
	} {
		s.makeForm(h, origin(o))
	}
	s.makeForm(h, fields(50))
}

func TestForms_CreateIsIdempotent(t *testing.T) {
	s := newService(t)
	_, h := s.workspace()
	keyed := h.with("Idempotency-Key", "one")
	s.do("POST", formsPath, keyed, `{}`).wants(t, 400)
	first := s.do("POST", formsPath, keyed, allTypes).wants(t, 201)
	s.do("POST", formsPath, keyed, allTypes).repeats(t, first)
	s.wantsRows(1, "resource.forms", "")
	s.do("POST", formsPath, keyed, `{}`).wants(t, 409)
}

func TestForms_SubmissionsAreListedForOwnWorkspaceOnly(t *testing.T) {
	s := newWorker(t)
	h, f := s.form()
	first := s.accepted(f)
	s.ended(first)
	second := s.sends(f, goodAnswersWith("hours", json.Number("9007199254740993"))) // not representable as a float64
	s.ended(second)
	type record struct {
		ID          uuid.UUID
		Status      string
		Reasons     []string
		Answers     map[string]any
		Consents    []struct{ Field, NoticeVersion string }
		SupporterID *uuid.UUID
		FinishedAt  *time.Time
	}
	path := f.own() + "/submissions"
	s.get(path, h).has(t, `"hours":9007199254740993`)
	all := pageOf[record](s, path, h)
	if len(all.Data) != 2 || all.Meta.NextCursor != "" {
		t.Fatalf("%+v", all)
	}
	if one := all.Data[0]; one.ID != second.ID || one.Status != "processed" || len(one.Consents) != 2 ||
		one.SupporterID == nil || one.FinishedAt == nil || one.Reasons == nil || one.Answers["privacy"] != true ||
		one.Answers["about"] != "One line.\nAnother line." || one.Answers["news"] != false {
		t.Errorf("%+v", one)
	}
	var seen []uuid.UUID
	for p := range pagesOf[record](s, path+"?limit=1", h) {
		seen = append(seen, p.Data[0].ID)
	}
	if !slices.Equal(seen, []uuid.UUID{second.ID, first.ID}) {
		t.Errorf("%v", seen)
	}
	_, other := s.workspace()
	s.get(path, other).expect(t, 404, "NOT_FOUND", "")
	for _, unknown := range []string{uuid.NewString(), "x"} {
		s.get(formsPath+"/"+unknown+"/submissions", h).expect(t, 404, "NOT_FOUND", "")
	}
}

func (s *service) patch(f formRecord, h header, body string) answer {
	s.t.Helper()
	return s.do("PATCH", f.own(), h, body)
}

func TestForms_ReadAndChange(t *testing.T) {
	s := newService(t)
	_, h := s.workspace()
	made := s.do("POST", formsPath, h, allTypes)
	f := decoded[formRecord](t, made)
	made.header(t, "ETag", `"1"`).header(t, "Location", base+f.own())
	s.wantsForm(f, h, "Volunteer with us", 1, true)
	a := s.patch(f, h, `{"title":"Lend a hand","allowedOrigins":["`+otherOrigin+`"]}`)
	a.wants(t, 200, `"allowedOrigins":["`+otherOrigin+`"]`).header(t, "ETag", `"2"`)
	s.get(f.own(), h).is(t, a.Body)
	s.wantsForm(f, h, "Lend a hand", 2, true)
	s.get(f.path(), header{"Origin": otherOrigin}).wants(t, 200, "Lend a hand")
	s.get(f.path(), header{"Origin": goodOrigin}).wants(t, 403)
	for _, same := range []string{
		`{}`, `{"title":"Lend a hand"}`, `{"enabled":true,"allowedOrigins":["` + otherOrigin + `"]}`,
	} {
		s.patch(f, h, same).wants(t, 200).header(t, "ETag", `"2"`)
	}
	merge := h.with("Content-Type", "application/merge-patch+json")
	s.patch(f, merge, `{"allowedOrigins":[]}`).wants(t, 200).header(t, "ETag", `"3"`)
}

// A closed form is hidden from the public at once, its submissions remain, and it can be reopened. A page that was
// opened before can be submitted after that.
func TestForms_CloseAndReopen(t *testing.T) {
	s := newService(t)
	h, f := s.form()
	first := s.accepted(f)
	open := submissionOf(s.submissionToken(f), goodAnswers())
	s.patch(f, h, `{"enabled":false}`).wants(t, 200, `"enabled":false`)
	for _, a := range []answer{s.get(f.path(), nil), s.submit(f, nil, open), s.get(f.path()+"/embed", nil)} {
		a.wants(t, 404)
	}
	s.wantsForm(f, h, "Volunteer with us", 2, false)
	s.get(f.own()+"/submissions", h).wants(t, 200, first.ID.String())
	const closedAt = "select extract(epoch from disabled_at)::bigint from resource.forms where id = $1"
	closed := s.Count(closedAt, f.ID)
	s.Exec("update resource.forms set disabled_at = disabled_at - interval '1 hour' where {mine}")
	s.patch(f, h, `{"title":"Closed for now","enabled":false}`).wants(t, 200)
	s.Wants(closed-3600, closedAt, f.ID) // the time of closing stays
	s.patch(f, h, `{"enabled":true}`).wants(t, 200)
	s.acceptedAs(s.submit(f, nil, open))
}

func TestForms_CreateClosed(t *testing.T) {
	s := newService(t)
	_, h := s.workspace()
	f := s.makeForm(h, allTypesWith(`"enabled":false`))
	s.wantsForm(f, h, "Volunteer with us", 1, false)
	s.get(f.path(), nil).wants(t, 404)
	s.patch(f, h, `{"enabled":true}`).wants(t, 200)
	s.get(f.path(), nil).wants(t, 200)
	for _, wrong := range []string{"null", `"false"`, "0"} {
		s.do("POST", formsPath, h, allTypesWith(`"enabled":`+wrong)).wants(t, 400, `"enabled"`)
	}
}

func TestForms_ChangeRequiresMatchingVersion(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	h, f := s.form()
	s.patch(f, h, `{"title":"Second"}`)
	for _, stale := range []string{`"1"`, `W/"1"`, `"1", "3"`} {
		s.patch(f, h.with("If-Match", stale), `{"title":"Third"}`).expect(t, 412, "PRECONDITION_FAILED", "")
	}
	s.patch(f, h.with("If-Match", "2"), `{"title":"Third"}`).wants(t, 400)
	s.wantsForm(f, h, "Second", 2, true)
	s.Exec("begin") // and lock the form until all requests wait
	s.Exec("select 1 from resource.forms where id = $1 for update", f.ID)
	changed := make(chan []answer, 1)
	go func() {
		changed <- atOnce(8, func(int) answer {
			return s.patch(f, h.with("If-Match", `"2"`), `{"title":"Mine `+uuid.NewString()+`"}`)
		})
	}()
	s.until("a request waits", func() bool {
		return s.Count("select count(*) from "+testkit.Locks+" where not granted and locktype = 'transactionid'") > 0
	})
	s.Exec("commit")
	count := byStatus(<-changed)
	if count[200] != 1 || count[412] == 0 || count[412]+count[503] != 7 { // 503: it waited for more than a second
		t.Errorf("of eight changes of one version: %v", count)
	}
	keyed := h.with("Idempotency-Key", "one")
	once := s.patch(f, keyed, `{"title":"Once"}`)
	s.patch(f, h, `{"title":"Meanwhile"}`)
	s.patch(f, keyed, `{"title":"Once"}`).wants(t, 200).is(t, once.Body).header(t, "ETag", once.Header.Get("ETag"))
	s.wantsForm(f, h, "Meanwhile", 5, true)
}

func TestForms_RefusesInvalidChange(t *testing.T) {
	s := newService(t)
	workspaceID, h := s.workspace()
	f := s.makeForm(h, allTypes)
	for body, wrong := range map[string]string{
		`{"title":""}`:             "title",
		`{"title":null}`:           "title",
		`{"title":7}`:              "title",
		`{"title":"a\nb"}`:         "title",
		`{"allowedOrigins":null}`:  "allowedOrigins",
		`{"allowedOrigins":"*"}`:   "allowedOrigins",
		`{"allowedOrigins":["*"]}`: "allowedOrigins[0]",
		`{"enabled":null}`:         "enabled",
		`{"enabled":"false"}`:      "enabled",
		`{"enabled":0}`:            "enabled",
		`{"fields":null}`:          "fields",
		`{"title":"Good","fields":[{"name":"a","label":"A","type":"text"}]}`: "fields",
	} {
		s.patch(f, h, body).names(t, wrong)
	}
	for _, body := range []string{``, `[]`, `{"title":"a","title":"b"}`, `{"title":"\ud800"}`} {
		s.patch(f, h, body).expect(t, 400, "VALIDATION_ERROR", "")
	}
	s.patch(f, h.with("Content-Type", "text/plain"), `{}`).wants(t, 400)
	_, other := s.workspace()
	for _, a := range []answer{
		s.get(f.own(), other), s.patch(f, other, `{"title":"Theirs"}`), s.patch(f, other, `{}`),
		s.get(formsPath+"/"+uuid.NewString(), h), s.get(formsPath+"/x", h),
		s.patch(formRecord{ID: uuid.New()}, h, `{"title":"x"}`),
	} {
		a.expect(t, 404, "NOT_FOUND", "")
	}
	reads, writes := s.holder(workspaceID, perm.EngageReadForms), s.holder(workspaceID, perm.EngageWriteForms)
	s.get(f.own(), reads).wants(t, 200)
	s.patch(f, reads, `{"title":"x"}`).wants(t, 403)
	s.get(f.own(), writes).wants(t, 403)
	s.get(f.own(), nil).wants(t, 401)
	s.patch(f, header{}.json(), `{}`).wants(t, 401)
	s.do("PUT", f.own(), h, "").wants(t, http.StatusMethodNotAllowed)
	s.wantsForm(f, h, "Volunteer with us", 1, true)
}

// wantsForm checks what the workspace reads: the title, the version, and whether the form is open.
func (s *service) wantsForm(f formRecord, h header, title string, version int, enabled bool) {
	s.t.Helper()
	s.get(f.own(), h).
		wants(s.t, 200, `"id":"`+f.ID.String()+`"`, `"embedKey":"`+f.EmbedKey+`"`, `"title":"`+title+`"`).
		has(s.t, fmt.Sprintf(`"enabled":%t`, enabled), `"name":"privacy"`).
		header(s.t, "ETag", fmt.Sprintf(`"%d"`, version))
}
