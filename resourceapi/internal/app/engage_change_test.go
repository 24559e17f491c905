package app

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// changedForm is a form as the workspace reads it.
type changedForm struct {
	ID             uuid.UUID
	EmbedKey       string
	Title          string
	Fields         []map[string]any
	AllowedOrigins []string
	Enabled        bool
}

func (s *service) formNow(f formRecord, h header) (changedForm, string) {
	s.t.Helper()
	a := s.get(formsPath+"/"+f.ID.String(), h)
	var now changedForm
	a.decode(s.t, &now)
	if a.Status != 200 || now.ID != f.ID || now.EmbedKey != f.EmbedKey || len(now.Fields) != 10 {
		s.t.Fatalf("%d %s", a.Status, a.Body)
	}
	return now, a.Header.Get("ETag")
}

func (s *service) patch(f formRecord, h header, body string) answer {
	s.t.Helper()
	return s.do("PATCH", formsPath+"/"+f.ID.String(), h, body)
}

func TestForms_ReadAndChange(t *testing.T) {
	s := newService(t)
	_, h := s.workspace()
	made := s.do("POST", formsPath, h, allTypes)
	var f formRecord
	made.decode(t, &f)
	made.header(t, "ETag", `"1"`).header(t, "Location", base+formsPath+"/"+f.ID.String())
	if now, tag := s.formNow(f, h); tag != `"1"` || !now.Enabled || now.Title != "Volunteer with us" {
		t.Errorf("%s %+v", tag, now)
	}
	a := s.patch(f, h, `{"title":"Lend a hand","allowedOrigins":["`+otherOrigin+`"]}`)
	a.wants(t, 200).header(t, "ETag", `"2"`)
	read := s.get(formsPath+"/"+f.ID.String(), h)
	if strings.TrimSpace(read.Body) != strings.TrimSpace(a.Body) {
		t.Errorf("answered %s, reads %s", a.Body, read.Body)
	}
	if now, _ := s.formNow(f, h); now.Title != "Lend a hand" || len(now.AllowedOrigins) != 1 ||
		now.AllowedOrigins[0] != otherOrigin || !now.Enabled {
		t.Errorf("%+v", now)
	}
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
	if now, _ := s.formNow(f, h); now.Enabled {
		t.Error("still open")
	}
	s.get(formsPath+"/"+f.ID.String()+"/submissions", h).wants(t, 200, first.ID.String())
	closed := s.Count("select extract(epoch from disabled_at)::bigint from resource.forms where id = $1", f.ID)
	s.Exec("update resource.forms set disabled_at = disabled_at - interval '1 hour' where {mine}")
	s.patch(f, h, `{"title":"Closed for now","enabled":false}`).wants(t, 200)
	const closedAt = "select extract(epoch from disabled_at)::bigint from resource.forms where id = $1"
	if since := s.Count(closedAt, f.ID); since != closed-3600 {
		t.Errorf("the time of closing changed to %d, was %d", since, closed-3600)
	}
	s.patch(f, h, `{"enabled":true}`).wants(t, 200)
	s.acceptedAs(s.submit(f, nil, open))
}

func TestForms_CreateClosed(t *testing.T) {
	s := newService(t)
	_, h := s.workspace()
	f := s.makeForm(h, strings.Replace(allTypes, "{", `{"enabled":false,`, 1))
	if now, _ := s.formNow(f, h); now.Enabled || s.get(f.path(), nil).Status != 404 {
		t.Error("the form is open")
	}
	if a := s.patch(f, h, `{"enabled":true}`); a.Status != 200 || s.get(f.path(), nil).Status != 200 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	for _, wrong := range []string{"null", `"false"`, "0"} {
		a := s.do("POST", formsPath, h, strings.Replace(allTypes, "{", `{"enabled":`+wrong+`,`, 1))
		a.wants(t, 400, `"enabled"`)
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
	if now, tag := s.formNow(f, h); now.Title != "Second" || tag != `"2"` {
		t.Errorf("%s %+v", tag, now)
	}
	statuses := make([]int, 8)
	var group sync.WaitGroup
	s.Exec("begin") // and lock the form until all requests wait
	s.Exec("select 1 from resource.forms where id = $1 for update", f.ID)
	for i := range statuses {
		group.Go(func() {
			statuses[i] = s.patch(f, h.with("If-Match", `"2"`), `{"title":"Mine `+uuid.NewString()+`"}`).Status
		})
	}
	s.until("a request waits", func() bool {
		return s.Count("select count(*) from "+testkit.Locks+" where not granted and locktype = 'transactionid'") > 0
	})
	s.Exec("commit")
	group.Wait()
	count := map[int]int{}
	for _, status := range statuses {
		count[status]++
	}
	if count[200] != 1 || count[412] == 0 || count[412]+count[503] != 7 { // 503: it waited for more than a second
		t.Errorf("of eight changes of one version: %v", count)
	}
	keyed := h.with("Idempotency-Key", "one")
	once := s.patch(f, keyed, `{"title":"Once"}`)
	s.patch(f, h, `{"title":"Meanwhile"}`)
	if again := s.patch(f, keyed, `{"title":"Once"}`); again.Status != 200 || again.Body != once.Body ||
		again.Header.Get("ETag") != once.Header.Get("ETag") {
		t.Errorf("%d %s", again.Status, again.Body)
	}
	if now, _ := s.formNow(f, h); now.Title != "Meanwhile" {
		t.Errorf("%+v", now)
	}
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
		`{"title":"Good","fields":[{"name":"a","label":"A","type":"text"}]}`: "fields",
		`{"fields":null}`: "fields",
	} {
		if problems := s.patch(f, h, body).fields(t); problems[wrong] == "" {
			t.Errorf("%s: %v", body, problems)
		}
	}
	for _, body := range []string{``, `[]`, `{"title":"a","title":"b"}`, `{"title":"\ud800"}`} {
		s.patch(f, h, body).expect(t, 400, "VALIDATION_ERROR", "")
	}
	s.patch(f, h.with("Content-Type", "text/plain"), `{}`).wants(t, 400)
	_, other := s.workspace()
	for _, a := range map[string]answer{
		"another workspace reads":           s.get(formsPath+"/"+f.ID.String(), other),
		"another workspace changes":         s.patch(f, other, `{"title":"Theirs"}`),
		"another workspace changes nothing": s.patch(f, other, `{}`),
		"never was":                         s.get(formsPath+"/"+uuid.NewString(), h),
		"no identifier":                     s.get(formsPath+"/x", h),
		"changes what never was":            s.patch(formRecord{ID: uuid.New()}, h, `{"title":"x"}`),
	} {
		a.expect(t, 404, "NOT_FOUND", "")
	}
	reader, writer := s.User(), s.User()
	s.Member(workspaceID, reader, perm.EngageReadForms)
	s.Member(workspaceID, writer, perm.EngageWriteForms)
	reads, writes := as(s.PAT(workspaceID, reader, perm.EngageReadForms).Reveal(), workspaceID).json(),
		as(s.PAT(workspaceID, writer, perm.EngageWriteForms).Reveal(), workspaceID).json()
	for _, c := range []struct {
		name string
		got  answer
		want int
	}{
		{"reader reads", s.get(formsPath+"/"+f.ID.String(), reads), 200},
		{"reader changes", s.patch(f, reads, `{"title":"x"}`), 403},
		{"writer reads", s.get(formsPath+"/"+f.ID.String(), writes), 403},
		{"read without a credential", s.get(formsPath+"/"+f.ID.String(), nil), 401},
		{"change without a credential", s.patch(f, header{}.json(), `{}`), 401},
		{"replaces", s.do("PUT", formsPath+"/"+f.ID.String(), h, ""), http.StatusMethodNotAllowed},
	} {
		if c.got.Status != c.want {
			t.Errorf("%s: %d %s", c.name, c.got.Status, c.got.Body)
		}
	}
	if now, tag := s.formNow(f, h); now.Title != "Volunteer with us" || !now.Enabled || tag != `"1"` {
		t.Errorf("a refused change had an effect: %s %+v", tag, now)
	}
}
