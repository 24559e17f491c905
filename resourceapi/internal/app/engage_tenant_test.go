package app

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

func TestForms_CreateAndListNewestFirst(t *testing.T) {
	s := newService(t)
	_, h := s.workspace()
	if a := s.get(formsPath, h); a.Status != 200 || strings.TrimSpace(a.Body) != `{"data":[],"meta":{"count":0}}` {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	var made []formRecord
	for range 5 {
		made = append(made, s.makeForm(h, allTypes))
	}
	_, other := s.workspace()
	s.makeForm(other, allTypes)
	type page struct {
		Data []struct {
			ID             uuid.UUID
			EmbedKey       string
			Title          string
			Fields         []map[string]any
			AllowedOrigins []string
			Enabled        bool
			CreatedAt      time.Time
		}
		Meta struct {
			Count      int
			NextCursor string
		}
	}
	var seen []uuid.UUID
	query := "?limit=2"
	for {
		var p page
		a := s.get(formsPath+query, h)
		a.decode(t, &p)
		if a.Status != 200 || p.Meta.Count != len(p.Data) || len(p.Data) > 2 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		for _, f := range p.Data {
			seen = append(seen, f.ID)
			if f.Title != "Volunteer with us" || len(f.Fields) != 10 || f.AllowedOrigins[0] != goodOrigin ||
				!f.Enabled || f.CreatedAt.IsZero() || f.EmbedKey == "" {
				t.Errorf("%+v", f)
			}
		}
		if p.Meta.NextCursor == "" {
			break
		}
		query = "?limit=2&cursor=" + p.Meta.NextCursor
		s.get(formsPath+query, other).wants(t, 400)
		s.get(formsPath+"/"+made[0].ID.String()+"/submissions"+query, h).wants(t, 400)
	}
	if len(seen) != 5 || seen[0] != made[4].ID || seen[4] != made[0].ID {
		t.Errorf("%v", seen)
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
		perm.EngageReadForms:  func(h header) answer { return s.get(formsPath, h) },
		perm.EngageWriteForms: func(h header) answer { return s.do("POST", formsPath, h.json(), allTypes) },
		perm.EngageReadSubmissions: func(h header) answer {
			return s.get(formsPath+"/"+f.ID.String()+"/submissions", h)
		},
	}
	for held := range routes {
		h := s.holder(workspaceID, held)
		for needed, call := range routes {
			a := call(h)
			if allowed := a.Status < 300; allowed != (needed == held) || (!allowed && a.Status != 403) {
				t.Errorf("%s with %s: %d %s", needed, held, a.Status, a.Body)
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
	first := s.do("POST", formsPath, keyed, allTypes)
	again := s.do("POST", formsPath, keyed, allTypes)
	if first.Status != 201 || again.Status != 201 || again.Body != first.Body || s.rows("resource.forms", "") != 1 {
		t.Errorf("%d %s\n%d %s", first.Status, first.Body, again.Status, again.Body)
	}
	s.do("POST", formsPath, keyed, `{}`).wants(t, 409)
}

func TestForms_SubmissionsAreListedForOwnWorkspaceOnly(t *testing.T) {
	s := newWorker(t)
	h, f := s.form()
	first := s.accepted(f)
	s.ended(first)
	exact := goodAnswers()
	exact["hours"] = json.Number("9007199254740993") // not representable as a float64
	second := s.acceptedAs(s.submit(f, nil, submissionOf(s.submissionToken(f), exact)))
	s.ended(second)
	path := formsPath + "/" + f.ID.String() + "/submissions"
	var p struct {
		Data []struct {
			ID          uuid.UUID
			Status      string
			Reasons     []string
			Answers     map[string]any
			Consents    []struct{ Field, NoticeVersion string }
			SupporterID *uuid.UUID
			CreatedAt   time.Time
			FinishedAt  *time.Time
		}
		Meta struct {
			Count      int
			NextCursor string
		}
	}
	a := s.get(path, h)
	a.decode(t, &p)
	if a.Status != 200 || p.Meta.Count != 2 || p.Data[0].ID != second.ID || p.Data[1].ID != first.ID ||
		p.Meta.NextCursor != "" {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	one := p.Data[0]
	if one.Status != "processed" || len(one.Consents) != 2 || one.SupporterID == nil || one.FinishedAt == nil ||
		one.Reasons == nil || !strings.Contains(a.Body, `"hours":9007199254740993`) ||
		one.Answers["about"] != "One line.\nAnother line." || one.Answers["privacy"] != true ||
		one.Answers["news"] != false {
		t.Errorf("%+v", one)
	}
	s.get(path+"?limit=1", h).decode(t, &p)
	if p.Meta.Count != 1 || p.Meta.NextCursor == "" {
		t.Fatalf("%+v", p.Meta)
	}
	s.get(path+"?limit=1&cursor="+p.Meta.NextCursor, h).decode(t, &p)
	if p.Meta.Count != 1 || p.Data[0].ID != first.ID {
		t.Errorf("%+v", p)
	}
	_, other := s.workspace()
	for _, unknown := range []answer{
		s.get(path, other),
		s.get(formsPath+"/"+uuid.NewString()+"/submissions", h),
		s.get(formsPath+"/x/submissions", h),
	} {
		unknown.expect(t, 404, "NOT_FOUND", "")
	}
}
