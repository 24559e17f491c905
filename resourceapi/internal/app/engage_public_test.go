package app

import (
	"crypto/rand"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/crypt/credential"
)

func TestPublicForms_Definition(t *testing.T) {
	s, _, f := newForm(t)
	a := s.get(f.path(), nil).wants(t, 200, `"title":"Volunteer with us"`).lacks(t, goodOrigin)
	type field struct {
		Name, Label, Type string
		Required          bool
		Options           []string
	}
	body := decoded[struct {
		Fields          []field
		SubmissionToken string
	}](t, a)
	area := field{Name: "area", Label: "Where", Type: "select", Options: []string{"Kitchen", "Garden"}}
	if len(body.Fields) != 10 || !reflect.DeepEqual(body.Fields[5], area) || !body.Fields[9].Required {
		t.Errorf("%+v", body.Fields)
	}
	if token := s.submissionToken(f); body.SubmissionToken == "" || token == body.SubmissionToken {
		t.Error("two readers share a token")
	}
}

func TestPublicForms_AllowOnlyListedOrigins(t *testing.T) {
	s, _, f := newForm(t)
	body := submissionOf(s.submissionToken(f), goodAnswers())
	for _, origin := range []string{
		otherOrigin, "null", goodOrigin + ":8443", "http://www.harbour-trust.example", strings.ToUpper(goodOrigin),
		base, "*",
	} {
		from := header{"Origin": origin}
		for _, a := range []answer{
			s.get(f.path(), from), s.submit(f, from, body), s.do("OPTIONS", f.path()+"/submissions", from, ""),
		} {
			a.expect(t, 403, "FORBIDDEN", "").header(t, "Access-Control-Allow-Origin", "")
		}
	}
	s.wantsRows(0, "resource.submissions", "")
	from := header{"Origin": goodOrigin}
	preflight := s.do("OPTIONS", f.path()+"/submissions", from, "").wants(t, 204).
		header(t, "Access-Control-Allow-Origin", goodOrigin).
		header(t, "Access-Control-Allow-Headers", "Content-Type, Idempotency-Key")
	if methods := preflight.Header.Get("Access-Control-Allow-Methods"); !strings.Contains(methods, "POST") {
		preflight.fail(t, "POST among the methods")
	}
	bad := s.submit(f, from, submissionOf(s.submissionToken(f), map[string]any{}))
	bad.names(t, "name").header(t, "Access-Control-Allow-Origin", goodOrigin) // the site can read what is wrong
	good := s.submit(f, from, body)
	state := s.get(strings.TrimPrefix(s.acceptedAs(good).StatusURL, base), from)
	for _, a := range []answer{s.get(f.path(), from), good, state} {
		a.header(t, "Access-Control-Allow-Origin", goodOrigin).header(t, "Access-Control-Allow-Credentials", "")
		if !slices.Contains(a.Header.Values("Vary"), "Origin") {
			a.fail(t, "Vary: Origin")
		}
	}
	s.get(strings.TrimPrefix(s.accepted(f).StatusURL, base), header{"Origin": otherOrigin}).wants(t, 403)
}

// Each request has a wrong answer to every field, and one to a field that the form does not have. The answers are those
// that package engage and package spelling do not test.
func TestSubmit_ReportsEachInvalidAnswer(t *testing.T) {
	s, _, f := newForm(t)
	token := s.submissionToken(f)
	wrong := map[string][]any{
		"name":    {"  ", true, []string{"x"}},
		"email":   {"Ada <ada@example.org>"},
		"phone":   {"12", "call me", "1234567;89", "020 7946 0958 ext", "ext 12", "020 7946 0958 y12"},
		"hours":   {"NaN", true, []int{1}}, // an empty field of the page is no answer
		"from":    {"28/02/2026", "2026-2-28", "0000-01-01", 20260228},
		"area":    {"garden", []string{"Garden"}},
		"days":    {"Monday", []any{nil}},
		"about":   {1, []string{"x"}},
		"news":    {"yes", 1},
		"privacy": {1, nil},
		"extra":   {"x", nil},
	}
	for i := range 6 {
		answers := map[string]any{}
		for name, all := range wrong {
			answers[name] = all[i%len(all)]
		}
		s.submit(f, nil, submissionOf(token, answers)).namesOnly(t, slices.Collect(maps.Keys(wrong))...)
	}
	s.submit(f, nil, submissionOf(token, map[string]any{"name": "x"})).namesOnly(t, "email", "privacy")
	s.wantsRows(0, "resource.submissions", "")
	longest := goodAnswersWith("about", strings.Repeat("<", 5000))
	s.acceptedAs(s.submit(f, nil, submissionOf(token, longest))) // the refusals have not used up the token
}

func TestSubmit_RefusesInvalidBody(t *testing.T) {
	s, _, f := newForm(t)
	token := s.submissionToken(f)
	good := submissionOf(token, goodAnswers())
	for _, body := range []string{
		"", "[]", "null", good + "x", "\xff" + good,
		`{"submissionToken":"` + token + `"}`,
		`{"submissionToken":"` + token + `","answers":[]}`,
		`{"submissionToken":"` + token + `","answers":null}`,
		strings.Replace(good, `"name":`, `"name":"twice","name":`, 1),
	} {
		s.submit(f, nil, body).expect(t, 400, "VALIDATION_ERROR", "")
	}
	s.do("POST", f.path()+"/submissions", header{"Content-Type": "text/plain"}, good).wants(t, 400)
	s.submit(f, nil, submissionOf(token, map[string]any{"about": strings.Repeat("x", 64<<10)})).wants(t, 413)
	s.do("PUT", f.path()+"/submissions", nil, good).wants(t, 405).header(t, "Allow", "OPTIONS, POST")
	s.wantsRows(0, "resource.submissions", "")
}

func TestE3_TokenIsValidForOneSubmissionToOneForm(t *testing.T) {
	s, h := newWorkspace(t)
	f, other := s.makeForm(h, allTypes), s.makeForm(h, allTypes)
	token := s.submissionToken(f)
	now := time.Now()
	for _, wrong := range []string{
		"", s.submissionToken(other), token + "A", s.tokens.ForSubmission(f.ID, now.Add(-time.Hour)),
	} {
		s.submit(f, nil, submissionOf(wrong, goodAnswers())).namesOnly(t, "submissionToken")
	}
	old := s.tokens.ForSubmission(f.ID, now.Add(-time.Hour+time.Minute))
	s.acceptedAs(s.submit(f, nil, submissionOf(old, goodAnswers())))
	s.acceptedAs(s.submit(f, nil, submissionOf(token, goodAnswers())))
	s.submit(f, nil, submissionOf(token, goodAnswers())).expect(t, 409, "CONFLICT", "")

	before, raced := s.submissions(), submissionOf(s.submissionToken(f), goodAnswers())
	count := byStatus(atOnce(8, func(int) answer { return s.submit(f, nil, raced) }))
	if count[202] != 1 || count[409] != 7 {
		t.Errorf("of eight submissions with a token: %v", count)
	}
	s.wantsRows(before+1, "resource.submissions", "")
}

func TestSubmit_RepeatedKeyReturnsFirstAnswerBeforeOtherChecks(t *testing.T) {
	s, h := newWorkspace(t)
	f, other := s.makeForm(h, allTypes), s.makeForm(h, allTypes)
	keyed := header{"Idempotency-Key": "once"}
	s.submit(f, keyed, submissionOf(s.submissionToken(f), map[string]any{})).wants(t, 400)
	body := submissionOf(s.submissionToken(f), goodAnswers())
	first := s.submit(f, keyed, body).header(t, "Idempotency-Replayed", "")
	s.acceptedAs(first) // with the token of its status, which is stored sealed
	const stored = `{mine} and route like 'submit to %' and (position('token='::bytea in body) > 0) = $1`
	s.Wants(1, "select count(*) from resource.idempotency_keys where "+stored, false)
	s.Wants(0, "select count(*) from resource.idempotency_keys where "+stored, true)
	same := func(h header) { t.Helper(); s.submit(f, h, body).repeats(t, first) }
	same(keyed)
	same(keyed.with("Origin", otherOrigin))
	s.Exec("update resource.forms set disabled_at = now() where {mine}")
	same(keyed)
	s.Exec("update resource.forms set disabled_at = null where {mine}")
	s.engage(false, true)
	same(keyed)
	s.submit(f, keyed, body+" ").expect(t, 409, "CONFLICT", "")
	s.engage(true, true)
	s.acceptedAs(s.submit(other, keyed, submissionOf(s.submissionToken(other), goodAnswers())))
	s.submit(f, header{"Idempotency-Key": "two words"}, body).wants(t, 400)
	s.wantsRows(2, "resource.submissions", "")
	s.Exec("update resource.idempotency_keys set created_at = now() - interval '24 hours' where {mine}")
	s.submit(f, keyed, body).wants(t, 409, "submissionToken")

	raced := submissionOf(s.submissionToken(f), goodAnswers())
	h = header{"Idempotency-Key": uuid.NewString()}
	repeatAtOnce(t, 202, func(int) answer { return s.submit(f, h, raced) })
}

func TestStatus_RequiresItsToken(t *testing.T) {
	s, h, f := newForm(t)
	mine, yours := s.accepted(f), s.accepted(f)
	path := publicPath + "/submissions/" + mine.ID.String()
	_, myToken, _ := strings.Cut(mine.StatusURL, "?token=")
	_, yourToken, _ := strings.Cut(yours.StatusURL, "?token=")
	now, unknown := time.Now(), uuid.New()
	for _, query := range []string{
		"", "?token=", "?token=" + yourToken, "?token=" + s.tokens.ForStatus(uuid.New(), mine.ID, now),
	} {
		s.get(path+query, nil).expect(t, 404, "NOT_FOUND", "")
	}
	for _, of := range []uuid.UUID{h.workspace(), uuid.Nil} { // tokens of earlier releases contain no workspace
		s.get(path+"?token="+s.tokens.ForStatus(of, mine.ID, now.Add(-23*time.Hour)), nil).wants(t, 200)
	}
	ofUnknown := s.tokens.ForStatus(h.workspace(), unknown, now)
	s.get(publicPath+"/submissions/"+unknown.String()+"?token="+ofUnknown, nil).wants(t, 404)
	s.Exec("update resource.forms set disabled_at = now() where {mine}")
	if state := s.state(mine); state.Status != "accepted" || len(state.Reasons) != 0 {
		t.Errorf("%+v", state)
	}
	s.logLacks(myToken)
}

// A closed form cannot be distinguished from one that never existed: the responses are byte-identical for every
// request, headers included. The exception is an Idempotency-Key that was used while the form was open.
func TestPublicForms_ClosedFormIsIndistinguishableFromUnknown(t *testing.T) {
	s, h := newWorkspace(t)
	closed := s.makeForm(h, withTexts) // its page would be in Welsh
	good := submissionOf(s.submissionToken(closed), goodAnswers())
	keyed := header{"Origin": goodOrigin, "Idempotency-Key": "first"}
	first := s.submit(closed, keyed, good)
	s.acceptedAs(first)
	unknown := orFail(credential.EmbedKey.New(rand.Reader))(t)
	long := `{"submissionToken":"` + strings.Repeat("x", 70_000) + `"}`
	longer := strings.Repeat("x", 400_000)
	sent := func(values ...string) http.Header { // with a header that has the values behind its name
		h := http.Header{"Content-Type": {"application/json"}}
		if len(values) > 0 {
			h[values[0]] = values[1:]
		}
		return h
	}
	page := func(origin ...string) http.Header {
		return http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Origin": origin}
	}
	none, from := http.Header{}, func(origin string) http.Header { return http.Header{"Origin": {origin}} }
	preflight := http.Header{"Origin": {goodOrigin}, "Access-Control-Request-Method": {"POST"}}
	requests := map[string]struct {
		method, below string
		header        http.Header
		body          string
	}{
		"read":                   {"GET", "", none, ""},
		"head":                   {"HEAD", "", none, ""},
		"read from the website":  {"GET", "", from(goodOrigin), ""},
		"read from elsewhere":    {"GET", "", from(otherOrigin), ""},
		"preflight":              {"OPTIONS", "/submissions", preflight, ""},
		"send":                   {"POST", "/submissions", sent(), good},
		"send from the website":  {"POST", "/submissions", sent("Origin", goodOrigin), good},
		"send from elsewhere":    {"POST", "/submissions", sent("Origin", otherOrigin), good},
		"two origins":            {"POST", "/submissions", sent("Origin", goodOrigin, otherOrigin), good},
		"send nothing":           {"POST", "/submissions", none, ""},
		"too long":               {"POST", "/submissions", sent("Origin", goodOrigin), long},
		"much too long":          {"POST", "/submissions", sent(), longer},
		"no such key":            {"POST", "/submissions", sent("Idempotency-Key", "a b"), good},
		"two keys":               {"POST", "/submissions", sent("Idempotency-Key", "a", "b"), good},
		"another key":            {"POST", "/submissions", sent("Idempotency-Key", "second"), good},
		"wrong method":           {"DELETE", "/submissions", none, ""},
		"page":                   {"GET", "/embed", none, ""},
		"page in Welsh":          {"GET", "/embed?lang=cy", none, ""},
		"page in no language":    {"GET", "/embed?lang=xx", none, ""},
		"page in a frame":        {"GET", "/embed?frame=1", from(goodOrigin), ""},
		"page of a submission":   {"GET", "/embed?submission=x&token=y", none, ""},
		"page sent":              {"POST", "/embed", page(base), "submissionToken=x"},
		"page sent by a website": {"POST", "/embed", page(goodOrigin), "submissionToken=x"},
		"page sent, too long":    {"POST", "/embed", page(), long},
	}
	look := func(name, embedKey string) answer {
		r := requests[name]
		a := s.send(r.method, publicPath+"/forms/"+embedKey+r.below, r.header.Clone(), r.body)
		a.Header.Del("X-Request-Id")
		a.Header.Del("Date")
		return a
	}
	compare := func(why string) {
		t.Helper()
		for _, name := range []string{"read", "read from elsewhere", "preflight", "send"} {
			look(name, closed.EmbedKey).refuses(t, 404, "NOT_FOUND")
		}
		look("page", closed.EmbedKey).wants(t, 404, "This form is not available")
		look("page in Welsh", closed.EmbedKey).wants(t, 404, "Nid yw’r ffurflen hon ar gael")
		for name := range requests {
			got, want := look(name, closed.EmbedKey), look(name, unknown.Reveal())
			if got.wants(t, want.Status).is(t, want.Body); !reflect.DeepEqual(got.Header, want.Header) {
				t.Errorf("%s, %s: %v, unlike an unknown form: %v", why, name, got.Header, want.Header)
			}
			look(name, "alm_embed_x").wants(t, want.Status).is(t, want.Body)
		}
	}
	s.Exec("update resource.forms set disabled_at = now() where {mine}")
	compare("disabled")
	s.engage(true, false)
	compare("disabled and not provisioned")
	s.Exec("update resource.forms set disabled_at = null where {mine}")
	s.engage(false, false)
	compare("Engage off")
	s.Exec("delete from account.tenant_modules where module = 'engage' and {mine}")
	compare("no module")
	s.submit(closed, keyed, good).wants(t, 202).is(t, first.Body).header(t, "Access-Control-Allow-Origin", goodOrigin)
	s.engage(true, false)
	s.get(closed.path(), nil).expect(t, 503, "TENANT_NOT_PROVISIONED", "").header(t, "Retry-After", "")
}
