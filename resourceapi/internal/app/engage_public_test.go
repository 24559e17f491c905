package app

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestPublicForms_Definition(t *testing.T) {
	s := newService(t)
	_, f := s.form()
	a := s.get(f.path(), nil)
	var body struct {
		Title  string
		Fields []struct {
			Name, Label, Type string
			Required          bool
			Options           []string
		}
		SubmissionToken string
	}
	a.decode(t, &body)
	if a.Status != 200 || body.Title != "Volunteer with us" || len(body.Fields) != 10 || body.SubmissionToken == "" {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	if area := body.Fields[5]; area.Name != "area" || area.Label != "Where" || area.Type != "select" || area.Required ||
		len(area.Options) != 2 {
		t.Errorf("%+v", area)
	}
	if !body.Fields[9].Required || strings.Contains(a.Body, goodOrigin) {
		t.Errorf("%s", a.Body)
	}
	if s.submissionToken(f) == body.SubmissionToken {
		t.Error("two readers share a token")
	}
}

func TestPublicForms_ClosedFormIs404(t *testing.T) {
	s := newService(t)
	workspaceID, h := s.workspace()
	f := s.makeForm(h, allTypes)
	good := submissionOf(s.submissionToken(f), goodAnswers())
	gone := func(f formRecord, why string) {
		t.Helper()
		for _, a := range []answer{
			s.get(f.path(), nil),
			s.submit(f, nil, good),
			s.do("OPTIONS", f.path()+"/submissions", header{"Origin": goodOrigin}, ""),
			s.get(f.path(), header{"Origin": otherOrigin}),
		} {
			a.expect(t, 404, "NOT_FOUND", "")
		}
		s.get(f.path()+"/embed", nil).wants(t, 404, "not available")
	}
	gone(formRecord{EmbedKey: "alm_embed_nothing"}, "no embed key")
	gone(formRecord{EmbedKey: f.EmbedKey[:len(f.EmbedKey)-1] + "!"}, "misspelt")
	for state, why := range map[string]string{
		"update resource.forms set disabled_at = now() where tenant_id = $1":                           "disabled",
		"update account.tenant_modules set enabled = false where module = 'engage' and tenant_id = $1": "Engage off",
		"delete from account.tenant_modules where module = 'engage' and tenant_id = $1":                "no Engage",
		"update account.tenant_modules set enabled = false, provisioned = false where module = 'engage' and " +
			"tenant_id = $1": "neither",
	} {
		s.Exec(state, workspaceID)
		gone(f, why)
		s.Exec("update resource.forms set disabled_at = null where {mine}")
		s.Exec(
			`insert into account.tenant_modules (tenant_id, module, enabled, provisioned)
			values ($1, 'engage', true, true)
			on conflict (tenant_id, module) do update set enabled = true, provisioned = true`,
			workspaceID,
		)
	}
	s.Exec("update account.tenant_modules set provisioned = false where {mine} and module = 'engage'")
	s.get(f.path(), nil).expect(t, 503, "TENANT_NOT_PROVISIONED", "").header(t, "Retry-After", "")
	s.Exec("update account.tenant_modules set provisioned = true where {mine} and module = 'engage'")
	s.acceptedAs(s.submit(f, nil, good))
}

func TestPublicForms_AllowOnlyListedOrigins(t *testing.T) {
	s := newService(t)
	_, f := s.form()
	body := submissionOf(s.submissionToken(f), goodAnswers())
	for _, origin := range []string{
		otherOrigin,
		"null",
		goodOrigin + ":8443",
		"http://www.harbour-trust.example",
		strings.ToUpper(goodOrigin),
		base,
		"*",
	} {
		from := header{"Origin": origin}
		for _, a := range []answer{
			s.get(f.path(), from), s.submit(f, from, body), s.do("OPTIONS", f.path()+"/submissions", from, ""),
		} {
			a.expect(t, 403, "FORBIDDEN", "").header(t, "Access-Control-Allow-Origin", "")
		}
	}
	if s.submissions() != 0 {
		t.Error("a submission of a refused origin was stored")
	}
	from := header{"Origin": goodOrigin}
	preflight := s.do("OPTIONS", f.path()+"/submissions", from, "")
	if preflight.Status != 204 || preflight.Header.Get("Access-Control-Allow-Origin") != goodOrigin ||
		!strings.Contains(preflight.Header.Get("Access-Control-Allow-Methods"), "POST") ||
		preflight.Header.Get("Access-Control-Allow-Headers") != "Content-Type, Idempotency-Key" {
		t.Errorf("%d %v", preflight.Status, preflight.Header)
	}
	bad := s.submit(f, from, submissionOf(s.submissionToken(f), map[string]any{}))
	if bad.Header.Get("Access-Control-Allow-Origin") != goodOrigin || len(bad.fields(t)) == 0 {
		t.Errorf("the site cannot read what is wrong: %v", bad.Header)
	}
	good := s.submit(f, from, body)
	state := s.get(strings.TrimPrefix(s.acceptedAs(good).StatusURL, base), from)
	for _, a := range []answer{s.get(f.path(), from), good, state} {
		if a.Header.Get("Access-Control-Allow-Origin") != goodOrigin ||
			!slices.Contains(a.Header.Values("Vary"), "Origin") ||
			a.Header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%d %v", a.Status, a.Header)
		}
	}
	s.get(strings.TrimPrefix(s.accepted(f).StatusURL, base), header{"Origin": otherOrigin}).wants(t, 403)
}

func TestSubmit_ReportsEachInvalidAnswer(t *testing.T) {
	s := newService(t)
	workspaceID, h := s.workspace()
	f := s.makeForm(h, allTypes)
	token := s.submissionToken(f)
	for name, wrong := range map[string][]any{
		"name": {"", "  ", nil, 7, true, []string{"x"}, strings.Repeat("n", 201), "two\nlines", "nul\x00"},
		"email": {
			"", "ada", "ada@", "@example.org", "Ada <ada@example.org>", "ada@example.org, b@example.org",
			"a b@example.org", "ada@[127.0.0.1]", strings.Repeat("a", 250) + "@example.org",
		},
		"phone":   {"12", "call me", "+44 20 7946 0958 1234 5678", "1234567;89"},
		"hours":   {"3", "", "NaN", true, []int{1}},
		"from":    {"2026-02-29", "28/02/2026", "2026-2-28", "0000-01-01", 20260228},
		"area":    {"garden", "Roof", []string{"Garden"}},
		"days":    {"Monday", []string{"Sunday"}, []string{"Monday", "Monday"}, []any{1}, []any{nil}},
		"about":   {strings.Repeat("x", 5001), "bell\a", 1},
		"news":    {"yes", 1, "true"},
		"privacy": {false, nil, "true", 1},
		"extra":   {"x", nil},
	} {
		for _, value := range wrong {
			answers := goodAnswers()
			answers[name] = value
			if name == "hours" && value == "" {
				continue // covered by the page test, where an empty field is no answer
			}
			problems := s.submit(f, nil, submissionOf(token, answers)).fields(t)
			if len(problems) != 1 || problems[name] == "" {
				t.Errorf("%s = %q: %v", name, value, problems)
			}
		}
	}
	for _, number := range []string{"1e999", "-1e999", "Infinity"} {
		content := strings.Replace(submissionOf(token, goodAnswers()), "3.5", number, 1)
		s.submit(f, nil, content).wants(t, 400)
	}
	both := s.submit(f, nil, submissionOf(token, map[string]any{"name": "x"})).fields(t)
	if len(both) != 2 || both["email"] == "" || both["privacy"] == "" {
		t.Errorf("%v", both)
	}
	if n := s.submissions() + s.Count(`select count(*) from river.river_job
		where args->>'workspace' = $1`, workspaceID.String()); n != 0 {
		t.Errorf("%d rows", n)
	}
	longest := goodAnswers()
	longest["about"] = strings.Repeat("<", 5000)
	s.acceptedAs(s.submit(f, nil, submissionOf(token, longest))) // the refusals have not used up the token
}

func TestSubmit_RefusesInvalidBody(t *testing.T) {
	s := newService(t)
	_, f := s.form()
	token := s.submissionToken(f)
	good := submissionOf(token, goodAnswers())
	for _, body := range []string{
		"",
		"[]",
		"null",
		good + "x",
		`{"submissionToken":"` + token + `"}`,
		`{"submissionToken":"` + token + `","answers":[]}`,
		`{"submissionToken":"` + token + `","answers":null}`,
		strings.Replace(good, `"name":`, `"name":"twice","name":`, 1),
		"\xff" + good,
	} {
		s.submit(f, nil, body).expect(t, 400, "VALIDATION_ERROR", "")
	}
	s.do("POST", f.path()+"/submissions", header{"Content-Type": "text/plain"}, good).wants(t, 400)
	large := submissionOf(token, map[string]any{"about": strings.Repeat("x", 64<<10)})
	s.submit(f, nil, large).wants(t, 413)
	s.do("PUT", f.path()+"/submissions", nil, good).wants(t, 405).header(t, "Allow", "OPTIONS, POST")
	if s.submissions() != 0 {
		t.Error("an invalid submission was stored")
	}
}

func TestE3_TokenIsValidForOneSubmissionToOneForm(t *testing.T) {
	s := newService(t)
	_, h := s.workspace()
	f, other := s.makeForm(h, allTypes), s.makeForm(h, allTypes)
	token := s.submissionToken(f)
	now := time.Now()
	for why, wrong := range map[string]string{
		"none":           "",
		"another form's": s.submissionToken(other),
		"cut":            token[:len(token)-1],
		"longer":         token + "A",
		"made up":        strings.Repeat("A", len(token)),
		"expired":        s.tokens.ForSubmission(f.ID, now.Add(-time.Hour)),
		"a status token": s.tokens.ForStatus(uuid.Nil, f.ID, now),
	} {
		problems := s.submit(f, nil, submissionOf(wrong, goodAnswers())).fields(t)
		if len(problems) != 1 || problems["submissionToken"] == "" {
			t.Errorf("%s: %v", why, problems)
		}
	}
	old := s.tokens.ForSubmission(f.ID, now.Add(-time.Hour+time.Minute))
	s.acceptedAs(s.submit(f, nil, submissionOf(old, goodAnswers())))
	s.acceptedAs(s.submit(f, nil, submissionOf(token, goodAnswers())))
	s.submit(f, nil, submissionOf(token, goodAnswers())).expect(t, 409, "CONFLICT", "")

	before, raced := s.submissions(), submissionOf(s.submissionToken(f), goodAnswers())
	statuses := make([]int, 8)
	var group sync.WaitGroup
	for i := range statuses {
		group.Go(func() { statuses[i] = s.submit(f, nil, raced).Status })
	}
	group.Wait()
	won := 0
	for _, status := range statuses {
		if status == 202 {
			won++
		} else if status != 409 {
			t.Errorf("%d", status)
		}
	}
	if won != 1 || s.submissions() != before+1 {
		t.Errorf("%v, %d stored", statuses, s.submissions()-before)
	}
}

func TestSubmit_RepeatedKeyReturnsFirstAnswerBeforeOtherChecks(t *testing.T) {
	s := newService(t)
	workspaceID, h := s.workspace()
	f, other := s.makeForm(h, allTypes), s.makeForm(h, allTypes)
	keyed := header{"Idempotency-Key": "once"}
	s.submit(f, keyed, submissionOf(s.submissionToken(f), map[string]any{})).wants(t, 400)
	body := submissionOf(s.submissionToken(f), goodAnswers())
	first := s.submit(f, keyed, body)
	s.acceptedAs(first)
	if first.replayed() {
		t.Error("the first answer is marked as given again")
	}
	same := func(why string, h header) {
		t.Helper()
		if a := s.submit(f, h, body); a.Status != 202 || a.Body != first.Body || !a.replayed() {
			t.Errorf("%s: %d %s", why, a.Status, a.Body)
		}
	}
	same("again", keyed)
	same("from elsewhere", keyed.with("Origin", otherOrigin))
	s.Exec("update resource.forms set disabled_at = now() where {mine}")
	same("closed", keyed)
	s.Exec("update resource.forms set disabled_at = null where {mine}")
	s.Exec("update account.tenant_modules set enabled = false where tenant_id = $1 and module = 'engage'", workspaceID)
	same("Engage off", keyed)
	s.submit(f, keyed, body+" ").expect(t, 409, "CONFLICT", "")
	s.Exec("update account.tenant_modules set enabled = true where tenant_id = $1 and module = 'engage'", workspaceID)
	s.acceptedAs(s.submit(other, keyed, submissionOf(s.submissionToken(other), goodAnswers())))
	s.submit(f, header{"Idempotency-Key": "two words"}, body).wants(t, 400)
	if n := s.submissions(); n != 2 {
		t.Errorf("%d submissions", n)
	}
	s.Exec("update resource.idempotency_keys set created_at = now() - interval '24 hours' where {mine}")
	s.submit(f, keyed, body).wants(t, 409, "submissionToken")

	raced := submissionOf(s.submissionToken(f), goodAnswers())
	h = header{"Idempotency-Key": uuid.NewString()}
	answers := make([]answer, 8)
	var group sync.WaitGroup
	for i := range answers {
		group.Go(func() { answers[i] = s.submit(f, h, raced) })
	}
	group.Wait()
	firsts := 0
	for _, a := range answers {
		if a.Status != 202 || a.Body != answers[0].Body {
			t.Errorf("%d %s", a.Status, a.Body)
		}
		if !a.replayed() {
			firsts++
		}
	}
	if firsts != 1 {
		t.Errorf("%d of %d answers are first ones", firsts, len(answers))
	}
}

func TestStatus_RequiresItsToken(t *testing.T) {
	s := newService(t)
	workspaceID, h := s.workspace()
	f := s.makeForm(h, allTypes)
	mine, yours := s.accepted(f), s.accepted(f)
	path := publicPath + "/submissions/" + mine.ID.String()
	_, yourToken, _ := strings.Cut(yours.StatusURL, "?token=")
	now := time.Now()
	for _, query := range map[string]string{
		"none":               "",
		"empty":              "?token=",
		"another's":          "?token=" + yourToken,
		"a submission token": "?token=" + s.tokens.ForSubmission(mine.ID, now),
		"old":                "?token=" + s.tokens.ForStatus(workspaceID, mine.ID, now.Add(-24*time.Hour)),
		"another workspace":  "?token=" + s.tokens.ForStatus(uuid.New(), mine.ID, now),
	} {
		s.get(path+query, nil).expect(t, 404, "NOT_FOUND", "")
	}
	for _, of := range []uuid.UUID{workspaceID, uuid.Nil} { // tokens of earlier releases contain no workspace
		s.get(path+"?token="+s.tokens.ForStatus(of, mine.ID, now.Add(-23*time.Hour)), nil).wants(t, 200)
	}
	unknown := uuid.New()
	unknownToken := s.tokens.ForStatus(workspaceID, unknown, now)
	address := fmt.Sprintf("%s/submissions/%s?token=%s", publicPath, unknown, unknownToken)
	s.get(address, nil).wants(t, 404)
	s.Exec("update resource.forms set disabled_at = now() where {mine}")
	if state := s.state(mine); state.Status != "accepted" || len(state.Reasons) != 0 {
		t.Errorf("%+v", state)
	}
	_, myToken, _ := strings.Cut(mine.StatusURL, "?token=")
	if strings.Contains(s.log.String(), myToken) {
		t.Error("the token is in the log")
	}
}
