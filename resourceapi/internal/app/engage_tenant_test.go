package app

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// The members of a form as JSON. engage tests their values.
func TestForms_RefusesInvalidDefinition(t *testing.T) {
	s, h := newWorkspace(t)
	const title, origins = `"title":"T"`, `"allowedOrigins":[]`
	const one, two = `{"name":"a","label":"A","type":"text"}`, `{"name":"b","label":"B","type":"text"}`
	form := func(members ...string) string { return "{" + strings.Join(members, ",") + "}" }
	with := func(field string) string { return form(title, origins, `"fields":[`+one+`,`+field+`]`) }
	for body, wrong := range map[string]string{
		form(origins, `"fields":[`+one+`]`):                                             "title",
		form(title, `"fields":[`+one+`]`):                                               "allowedOrigins",
		form(title, origins):                                                            "fields",
		form(title, origins, `"fields":null`):                                           "fields",
		form(title, origins, `"fields":[`+strings.Repeat(one+",", 50)+one+`]`):          "fields",
		form(title, origins, `"fields":["a"]`):                                          "fields[0]",
		with(`{"label":"B","type":"text"}`):                                             "fields[1].name",
		with(strings.Replace(two, `"b"`, `"b c"`, 1)):                                   "fields[1].name",
		with(strings.Replace(two, "{", `{"required":"yes",`, 1)):                        "fields[1].required",
		with(`{"name":"b","label":"B","type":"select","options":["x",null]}`):           "fields[1].options",
		form(title, `"allowedOrigins":["https://a.example","*"]`, `"fields":[`+one+`]`): "allowedOrigins[1]",
	} {
		s.do("POST", formsPath, h, body).names(t, wrong)
	}
	for _, body := range []string{"", "[]", `{"title":"x",` + ideaForm[1:], ideaForm + "x"} {
		s.do("POST", formsPath, h, body).expect(t, 400, "VALIDATION_ERROR", "").namesOnly(t)
	}
	s.do("POST", formsPath, h.with("Content-Type", "text/plain"), ideaForm).namesOnly(t)
	s.wantsRows(0, "resource.forms", "")
	s.makeForm(h, form(title, `"allowedOrigins":["http://127.0.0.1"]`, `"fields":[`+one+`,`+two+`]`))
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
	other := s.workspace()
	s.get(path, other).expect(t, 404, "NOT_FOUND", "")
}

func (s *service) patch(f formRecord, h header, body string) answer {
	s.t.Helper()
	return s.do("PATCH", f.own(), h, body)
}

func TestForms_ReadAndChange(t *testing.T) {
	s, h := newWorkspace(t)
	keyed := h.with("Idempotency-Key", uuid.NewString())
	made := s.do("POST", formsPath, keyed, allTypes)
	f := decoded[formRecord](t, made)
	made.has(t, `"createdAt":"2`, goodOrigin).header(t, "Idempotency-Replayed", "")
	for _, a := range []answer{made, s.do("POST", formsPath, keyed, allTypes).repeats(t, made)} {
		a.header(t, "ETag", `"1"`).header(t, "Location", base+f.own())
	}
	s.wantsRows(1, "resource.forms", "")
	s.get(formsPath, h).has(t, strings.TrimSpace(made.Body))
	s.wantsForm(f, h, "Volunteer with us", 1, true)
	const change = `{"title":"Lend a hand","allowedOrigins":["` + otherOrigin + `"]}`
	a := s.patch(f, keyed, change).header(t, "Idempotency-Replayed", "")
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
	s.patch(f, keyed, change).repeats(t, a).header(t, "ETag", `"2"`)
	s.get(f.own(), h).has(t, `"allowedOrigins":[]`).header(t, "ETag", `"3"`)
}

// A closed form is hidden from the public at once, its submissions remain, and it can be reopened. A page that was
// opened before can be submitted after that.
func TestForms_CloseAndReopen(t *testing.T) {
	s, h, f := newForm(t)
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
	s, h := newWorkspace(t)
	f := s.makeForm(h, allTypesWith(`"enabled":false`))
	s.wantsForm(f, h, "Volunteer with us", 1, false)
	s.get(f.path(), nil).wants(t, 404)
	s.patch(f, h, `{"enabled":true}`).wants(t, 200)
	s.get(f.path(), nil).wants(t, 200)
}

// engage tests the characters of texts. The members of the form that every body needs are tested in a change alone.
func TestForms_RefusesInvalidMember(t *testing.T) {
	s, h, f := newForm(t)
	for member, values := range map[string][]string{
		"title":           {`null`, `7`},
		"introduction":    {`null`, `7`, `"a\tb"`, `"a\rb"`, `"\u2800"`},
		"thankYou":        {`null`, `[]`, `"line\nhidden\u200e"`, `"a\u0301\u0301\u0301"`},
		"lang":            {`null`, `""`, `"EN"`, `"xx"`, `"../en"`},
		"allowedOrigins":  {`null`, `"*"`},
		"enabled":         {`null`, `"false"`, `0`},
		"retentionMonths": {`0`, `121`, `-1`, `1.5`, `"24"`, `null`, `1e1`, `99999999999999999999`, `[]`},
		"fields":          {`null`, `[{"name":"a","label":"A","type":"text"}]`},
	} {
		for _, value := range values {
			given := `"` + member + `":` + value
			s.patch(f, h, "{"+given+"}").namesOnly(t, member)
			if !strings.Contains(allTypes, `"`+member+`"`) {
				s.do("POST", formsPath, h, allTypesWith(given)).namesOnly(t, member)
			}
		}
	}
	s.patch(f, h, `{"lang":"xx"}`).has(t, "ar, cy, de, en, es, fr, pl, pt, ro, so, uk, ur")
	s.wantsForm(f, h, "Volunteer with us", 1, true)
}

func TestForms_RefusesInvalidChange(t *testing.T) {
	s, h, f := newForm(t)
	const change = `{"title":"Lost"}`
	for _, body := range []string{"", "[]", `{"title":"x","title":"Lost"}`, change + "x"} {
		s.patch(f, h, body).expect(t, 400, "VALIDATION_ERROR", "").namesOnly(t)
	}
	s.patch(f, h.with("Content-Type", "text/plain"), change).namesOnly(t)
	s.patch(f, h.with("If-Match", "1"), change).namesOnly(t) // no entity tag
	s.patch(f, h.with("If-Match", `W/"9"`), change).expect(t, 412, "PRECONDITION_FAILED", "")
	other := s.workspace()
	for _, a := range []answer{
		s.patch(f, other, `{"title":"Theirs"}`), s.patch(f, other, `{}`),
		s.patch(formRecord{ID: uuid.New()}, h, `{"title":"x"}`),
	} {
		a.expect(t, 404, "NOT_FOUND", "")
	}
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
