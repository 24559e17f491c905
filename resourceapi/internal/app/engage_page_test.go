package app

import (
	"fmt"
	"html"
	"maps"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/page/brand"
	"github.com/almonerhq/almoner/shared/page/pagestyle"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
)

// goodFields are goodAnswers in the encoding of the page.
func goodFields(token string) url.Values {
	return url.Values{
		"submissionToken": {token},
		"website":         {""},
		"a.name":          {"Ada Okafor"},
		"a.email":         {"Ada@Example.org"},
		"a.phone":         {"+44 20 7946 0958"},
		"a.hours":         {" +03.5 "},
		"a.from":          {"2026-02-28"},
		"a.area":          {"Garden"},
		"a.days":          {"Monday", "Friday"},
		"a.about":         {"One line.\r\nAnother line."},
		"a.privacy":       {"yes"},
	}
}

func (s *service) sendPage(f formRecord, h header, fields url.Values) answer {
	s.t.Helper()
	return s.do("POST", f.path()+"/embed", h.with("Content-Type", "application/x-www-form-urlencoded"), fields.Encode())
}

// filled returns the token of a page that was opened ten seconds ago.
func (s *service) filled(f formRecord) string {
	return s.tokens.ForSubmission(f.ID, time.Now().Add(-10*time.Second))
}

// problems returns the messages beside the fields of the page, by element id.
func problems(a answer) map[string]string {
	found := map[string]string{}
	problem := regexp.MustCompile(`<p class="problem" id="(f\d+)-problem">([^<]+)</p>`)
	for _, match := range problem.FindAllStringSubmatch(a.Body, -1) {
		found[match[1]] = html.UnescapeString(match[2])
	}
	return found
}

func TestPublicPage_SubmitsWithoutScript(t *testing.T) {
	s := newOwn(t)
	h, f := s.form()
	page := s.get(f.path()+"/embed?frame=1", nil).wants(t, 200,
		`<form method="post" action="`+f.path()+`/embed?frame=1"`, `name="submissionToken" value="`,
		`<label for="f0">Your name</label>`, `type="email" autocomplete="email"`,
		`<legend>Which days`, `<option value="Kitchen">Kitchen</option>`,
		`I agree that my answers are kept for a year.`, `<button type="submit">`).
		header(t, "Content-Type", "text/html; charset=utf-8").
		header(t, "Cache-Control", "no-store").
		header(t, "X-Frame-Options", "")
	nowhere := s.makeForm(h, ideaForm)
	framedBy := func(a answer, ancestors string) {
		t.Helper()
		if policy := a.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'; ") ||
			!strings.HasSuffix(policy, "; frame-ancestors "+ancestors) {
			t.Errorf("%s, want the frame ancestors %s", policy, ancestors)
		}
	}
	framedBy(page, goodOrigin)
	framedBy(s.get(nowhere.path()+"/embed", nil), "'none'")

	done := s.sendPage(f, header{"Origin": base}, goodFields(s.filled(f))).wants(t, 303)
	location := done.Header.Get("Location")
	query, ours := strings.CutPrefix(location, f.path()+"/embed?")
	if !ours {
		t.Fatal(location)
	}
	s.get(location, nil).wants(t, 200, "We received your answers", `http-equiv="refresh"`)
	s.run()
	s.until("processed", func() bool { return s.rows("resource.submissions", "status = 'processed'") == 1 })
	s.get(location, nil).has(t, "We have processed them").lacks(t, `http-equiv="refresh"`)
	s.Wants(1, `select count(*) from resource.submissions
		where {mine} and answers = '{"name":"Ada Okafor","email":"Ada@Example.org","phone":"+44 20 7946 0958",
		"hours":3.5,"from":"2026-02-28","area":"Garden","days":["Monday","Friday"],
		"about":"One line.\nAnother line.","news":false,"privacy":true}'`)
	for _, wrong := range []string{
		f.path() + "/embed?submission=x&token=y", location + "x", nowhere.path() + "/embed?" + query,
	} {
		s.get(wrong, nil).wants(t, 404)
	}
}

func TestPublicPage_ShowsAnswersAndProblemsAgain(t *testing.T) {
	s, _, f := newForm(t)
	fields := goodFields(s.filled(f))
	fields.Set("a.name", `<b>"Ada"</b>`)
	fields.Set("a.email", "ada at example")
	fields.Set("a.hours", "3,5")
	fields.Set("a.area", "Roof")
	fields.Del("a.privacy")
	a := s.sendPage(f, nil, fields).wants(t, 400,
		`Please correct 4 answers.`, `href="#f1"`, `value="&lt;b&gt;&#34;Ada&#34;&lt;/b&gt;"`, `value="ada at example"`,
		`aria-invalid="true" aria-describedby="f1-problem"`, `value="3,5"`, `value="Friday" checked`,
		"One line.\r\nAnother line.</textarea>", `value="`+fields.Get("submissionToken")+`"`).
		lacks(t, `value="Tuesday" checked`, "<b>")
	if found := slices.Sorted(maps.Keys(problems(a))); !slices.Equal(found, []string{"f1", "f3", "f5", "f9"}) {
		t.Errorf("%v", found)
	}
	s.wantsRows(0, "resource.submissions", "")
	s.sendPage(f, nil, goodFields(fields.Get("submissionToken"))).wants(t, 303)
	s.sendPage(f, nil, goodFields(fields.Get("submissionToken"))).wants(t, 303)
	s.wantsRows(1, "resource.submissions", "")
	old := s.sendPage(f, nil, goodFields(s.tokens.ForSubmission(f.ID, time.Now().Add(-time.Hour))))
	old.wants(t, 400, "more than an hour", `value="Ada Okafor"`)
}

// The page sends answers again if it lost the response. The same answers count once; others leave the browser's draft.
func TestPublicPage_RepeatedTokenCountsOnce(t *testing.T) {
	s, _, f := newForm(t)
	fields := goodFields(s.filled(f))
	s.sendPage(f, nil, fields).wants(t, 303)
	again := s.sendPage(f, nil, fields).wants(t, 303)
	s.get(again.Header.Get("Location"), nil).wants(t, 200, "We received your answers", " data-over")
	for name, value := range map[string]string{"a.name": "Grace", "a.news": "yes", "website": "x"} {
		other := goodFields(fields.Get("submissionToken"))
		other.Set(name, value)
		s.sendPage(f, nil, other).wants(t, 409, "already sent").lacks(t, " data-over")
	}
	s.wantsRows(1, "resource.submissions", "")
}

// A script may also send the page with a key.
func TestPublicPage_RepeatedKeyCountsOnce(t *testing.T) {
	s, _, f := newForm(t)
	fields := goodFields(s.filled(f))
	keyed := header{"Idempotency-Key": fields.Get("submissionToken")}
	wrong := goodFields(fields.Get("submissionToken"))
	wrong.Del("a.privacy")
	s.sendPage(f, keyed, wrong).wants(t, 400, "Please correct one answer.")
	first := s.sendPage(f, keyed, fields).wants(t, 303)
	again := s.sendPage(f, keyed, fields).wants(t, 303).header(t, "Location", first.Header.Get("Location"))
	s.get(again.Header.Get("Location"), nil).wants(t, 200, "We received your answers", " data-over")
	s.wantsRows(1, "resource.submissions", "")
	fields.Set("a.name", "Grace")
	s.sendPage(f, keyed, fields).wants(t, 409, "already sent").lacks(t, " data-over")
	s.sendPage(f, header{"Idempotency-Key": "two words"}, fields).wants(t, 400, "could not be read")
	s.wantsRows(1, "resource.submissions", "")
}

// drivers is a form in which the question for the licence has a condition.
const drivers = `{"title":"Volunteer with us","allowedOrigins":[],"fields":[
	{"name":"help","label":"How?","type":"select","options":["Driving","Garden"]},
	{"name":"licence","label":"Licence","type":"text","required":true,"askIf":{"field":"help","equals":"Driving"}},
	{"name":"share","label":"Share my answers.","type":"consent"},
	{"name":"with","label":"With whom?","type":"multiselect","options":["A","B"],
		"askIf":{"field":"share","equals":true}}]}`

func TestForms_FieldIsAskedOnCondition(t *testing.T) {
	s, h := newWorkspace(t)
	f := s.makeForm(h, drivers)
	for _, a := range []answer{s.get(f.own(), h), s.get(f.path(), nil)} {
		a.wants(t, 200, `"askIf":{"field":"help","equals":"Driving"}`, `"askIf":{"field":"share","equals":true}`)
	}
	for condition, wrong := range map[string]string{
		`null`:   "fields[1].askIf",
		`"help"`: "fields[1].askIf",
		`{"field":"help","equals":"Driving","x":1}`: "fields[1].askIf",
		`{"field":7,"equals":"Driving"}`:            "fields[1].askIf.field",
		`{"field":"with","equals":"A"}`:             "fields[1].askIf.field",
		`{"field":"help"}`:                          "fields[1].askIf.equals",
		`{"field":"help","equals":["Driving"]}`:     "fields[1].askIf.equals",
	} {
		broken := strings.Replace(drivers, `{"field":"help","equals":"Driving"}`, condition, 1)
		s.do("POST", formsPath, h, broken).expect(t, 400, "VALIDATION_ERROR", "").namesOnly(t, wrong)
	}
	send := func(answers map[string]any) answer {
		t.Helper()
		return s.submit(f, nil, submissionOf(s.submissionToken(f), answers))
	}
	send(map[string]any{"help": "Driving"}).wants(t, 400).namesOnly(t, "licence")
	s.acceptedAs(send(map[string]any{"help": "Garden"}))
	s.acceptedAs(send(map[string]any{"help": "Garden", "licence": "not asked"}))
	s.get(f.own()+"/submissions/export?format=csv", h).has(t, "answers.licence,answers.share", ",Garden,not asked,,")

	page := s.get(f.path()+"/embed", nil).has(t,
		`<div class="field" data-ask-if="a.help" data-equals="Driving" data-label="Licence">`,
		`<p class="hint" id="f1-hint">Please answer this if, for `, ` data-required aria-describedby="f1-hint">`,
		`<fieldset class="field" data-ask-if="a.share" data-equals="yes" data-label="With whom?"`,
		"Please answer this if you agreed to the statement above.", " data-fresh>")
	if n := strings.Count(page.Body, " required"); n != 0 {
		page.fail(t, "no question that is always required")
	}
	fields := url.Values{"submissionToken": {s.filled(f)}, "a.help": {"Driving"}}
	s.sendPage(f, nil, fields).wants(t, 400, "Please answer this question.", `aria-describedby="f1-hint f1-problem"`).
		lacks(t, " data-fresh")
	fields.Set("a.licence", "AB12")
	s.sendPage(f, nil, fields).wants(t, 303)
}

func TestPublicPage_AcceptsOnlyOwnAndAllowedOrigins(t *testing.T) {
	s, _, f := newForm(t)
	for _, origin := range []string{otherOrigin, "null"} {
		s.sendPage(f, header{"Origin": origin}, goodFields(s.filled(f))).wants(t, 403, "cannot be sent from here")
	}
	s.wantsRows(0, "resource.submissions", "")
	for _, origin := range []string{base, goodOrigin} {
		s.sendPage(f, header{"Origin": origin}, goodFields(s.filled(f))).wants(t, 303)
	}
	s.do("POST", f.path()+"/embed", header{"Content-Type": "application/json"}, "{}").wants(t, 400)
	s.sendPage(f, nil, url.Values{"a.about": {strings.Repeat("x", 64<<10)}}).wants(t, 413, "too long")
}

func TestPublicPage_TrapAndMinimumTimeApplyToPageOnly(t *testing.T) {
	s := newWorker(t)
	_, f := s.form()
	s.sendPage(f, nil, goodFields(s.submissionToken(f))).wants(t, 400, "very quick")
	s.wantsRows(0, "resource.submissions", "")
	s.accepted(f) // scripts have no minimum time
	fields := goodFields(s.filled(f))
	fields.Set("website", "https://buy.example")
	trapped := s.sendPage(f, nil, fields).wants(t, 303)
	s.until("rejected", func() bool { return s.rows("resource.submissions", "status = 'rejected'") == 1 })
	s.get(trapped.Header.Get("Location"), nil).has(t, "could not accept", html.EscapeString(engage.ReasonTrapped))
	s.until("the other is processed", func() bool { return s.supporters() == 1 })
	s.wantsRows(1, "resource.submissions", "status = 'rejected' and supporter_id is null")
}

func TestPublicForms_AssetsArePublicAndCacheable(t *testing.T) {
	s := newService(t)
	for name, kind := range map[string]string{
		"embed.js":  "text/javascript",
		"form.js":   "text/javascript",
		"height.js": "text/javascript",
		"embed.css": "text/css",
		"logo":      "image/svg+xml",
	} {
		a := s.get(publicPath+"/"+name, nil).wants(t, 200).
			header(t, "Cache-Control", "public, max-age=300").
			header(t, "Cross-Origin-Resource-Policy", "cross-origin")
		if !strings.HasPrefix(a.Header.Get("Content-Type"), kind) || len(a.Body) < 100 {
			t.Errorf("%s: %v, %d bytes", name, a.Header, len(a.Body))
		}
		s.get(publicPath+"/"+name, header{"If-None-Match": a.Header.Get("ETag")}).wants(t, 304)
		a.Body = strings.ReplaceAll(a.Body, "http://www.w3.org/2000/svg", "")
		a.lacks(t, "http://", "https://") // it refers to no other host
		policy := a.Header.Get("Content-Security-Policy")
		if strings.HasSuffix(policy, "; sandbox") != (name == "logo") { // a deployment's own logo can be anything
			t.Errorf("%s: %s", name, policy)
		}
	}
}

// withTexts is allTypes with an introduction, a thank-you text and a language.
var withTexts = allTypesWith(`"introduction":"Come <b>and</b> help.\r\n\r\nBring gloves.",` +
	`"thankYou":"See you on Saturday.","lang":"cy"`)

func TestForms_TextsAreStoredAndChanged(t *testing.T) {
	s, h := newWorkspace(t)
	f := s.makeForm(h, withTexts)
	stored := s.get(f.own(), h)
	stored.Body = strings.NewReplacer("<", `\u003c`, ">", `\u003e`).Replace(stored.Body)
	stored.has(t, `"introduction":"Come \u003cb\u003eand\u003c/b\u003e help.\n\nBring gloves."`,
		`"thankYou":"See you on Saturday."`, `"lang":"cy"`)
	s.get(f.path(), nil).lacks(t, "Bring gloves")
	s.get(s.makeForm(h, allTypes).own(), h).has(t, `"introduction":"","thankYou":"","lang":"en"`)
	before := s.events(h, "").Data
	s.patch(f, h, `{"introduction":"","thankYou":"Thank you.","lang":"en"}`).
		wants(t, 200, `"introduction":"","thankYou":"Thank you.","lang":"en"`).header(t, "ETag", `"2"`)
	s.patch(f, h, `{"thankYou":"Thank you."}`).header(t, "ETag", `"2"`)
	s.patch(f, h, `{"title":"Another","allowedOrigins":[],"enabled":false}`).header(t, "ETag", `"3"`)
	got := texts(s.events(h, fmt.Sprint("?after=", before[len(before)-1].Sequence)).Data)
	want := []string{"form.updated introduction lang thankYou", "form.updated allowedOrigins enabled title"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestPublicPage_UsesLanguageOfForm(t *testing.T) {
	s, h := newWorkspace(t)
	f := s.makeForm(h, withTexts)
	s.get(f.path()+"/embed", nil).has(t,
		`<html lang="cy" dir="ltr">`, `<p class="lead own">Come &lt;b&gt;and&lt;/b&gt; help.</p>`,
		`<p class="lead own">Bring gloves.</p>`, `<span class="optional">(dewisol)</span>`,
		`<button type="submit">Anfon</button>`)
	fields := goodFields(s.filled(f))
	fields.Set("a.email", "ada at example")
	fields.Del("a.privacy")
	wrong := s.sendPage(f, nil, fields).has(t, "<title>Cywirwch: Volunteer with us</title>")
	if found := problems(wrong); found["f1"] != "Rhowch gyfeiriad e-bost, er enghraifft enw@example.org." ||
		found["f9"] != "Cytunwch i hyn er mwyn anfon y ffurflen." {
		t.Errorf("%v", found)
	}
	urlencoded := header{"Content-Type": "application/x-www-form-urlencoded"}
	english := s.do("POST", f.path()+"/embed?lang=en&frame=1", urlencoded, fields.Encode()).
		has(t, `<html lang="en-GB" dir="ltr" data-theme="light">`, `embed?frame=1&amp;lang=en"`)
	if found := problems(english); found["f9"] != "Please agree to this to send the form." {
		t.Errorf("%v", found)
	}
	s.submit(f, nil, submissionOf(s.submissionToken(f), map[string]any{"name": "Ada"})).
		wants(t, 400, "Cytunwch i hyn er mwyn anfon y ffurflen.")
	s.get(f.path()+"/embed?lang=en-US", nil).has(t, `<html lang="en-GB" dir="ltr">`)
	s.get(f.path()+"/embed?lang=%22tlh", nil).has(t, `<html lang="cy" dir="ltr" data-unknown-lang="&#34;tlh">`)
	s.Exec("update resource.forms set lang = 'tlh' where {mine}") // by a newer release
	s.get(f.path()+"/embed", nil).has(t, `<html lang="en-GB" dir="ltr" data-unknown-lang="tlh">`)
	s.get(f.path()+"/embed?lang=ur", nil).has(t, `<html lang="ur" dir="rtl">`)
	s.Exec("update resource.forms set lang = 'cy' where {mine}")
	done := s.sendPage(f, nil, goodFields(s.filled(f)))
	s.get(done.Header.Get("Location"), nil).
		has(t, "See you on Saturday.", "Rydym yn eu prosesu nawr.").
		lacks(t, "Bring gloves")
}

func TestPublicPage_ThemeAndAccentOfWebsite(t *testing.T) {
	s, _, f := newForm(t)
	for query, want := range map[string]string{
		"":                        `<html lang="en-GB" dir="ltr">`,
		"?frame=1":                `<html lang="en-GB" dir="ltr" data-theme="light">`,
		"?frame=1&theme=auto":     `<html lang="en-GB" dir="ltr">`,
		"?frame=1&theme=dark":     `<html lang="en-GB" dir="ltr" data-theme="dark">`,
		"?theme=light":            `<html lang="en-GB" dir="ltr" data-theme="light">`,
		"?frame=1&theme=%22onx=1": `<html lang="en-GB" dir="ltr" data-theme="light">`,
	} {
		s.get(f.path()+"/embed"+query, nil).wants(t, 200, want).lacks(t, "<style>")
	}
	styled := func(a answer, source string) {
		t.Helper()
		if policy := a.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "style-src 'self'"+source+";") {
			a.fail(t, "the style source"+source)
		}
	}
	style := pagestyle.Accent(orFail(brand.Parse("ffe08a"))(t))
	a := s.get(f.path()+"/embed?frame=1&theme=dark&accent=FFE08A", nil)
	styled(a.has(t, "<style>"+style+"</style>", `embed?accent=ffe08a&amp;frame=1&amp;theme=dark"`),
		" "+pagestyle.Hash(style))
	for _, accent := range []string{"red", "12345", "}a{color:red", "%3C/style%3E", "url(x)"} {
		styled(s.get(f.path()+"/embed?accent="+accent, nil).wants(t, 200).lacks(t, "<style>"), "")
	}
}

// A user who submits a form during an outage gets a page that resubmits the answers with one click.
func TestPublicPage_ReturnsAnswersDuringOutage(t *testing.T) {
	s := newOwn(t)
	_, f := s.form()
	var w *wire
	s.serve(s.build(silently, through(t, &w)))
	fields := goodFields(s.filled(f))
	fields.Set("a.name", `Ada "Okafor" <a@b>`)
	w.freeze()
	pages := requests{
		"opened":    func() answer { return s.get(f.path()+"/embed", nil) },
		"sent":      func() answer { return s.sendPage(f, nil, fields) },
		"elsewhere": func() answer { return s.sendPage(f, header{"Origin": otherOrigin}, fields) },
		"empty":     func() answer { return s.sendPage(f, nil, nil) },
		"accepted":  func() answer { return s.get(f.path()+"/embed?submission=x&token=y", nil) },
	}.send()
	for page, heading := range map[string]string{
		"opened": "We cannot show this form at the moment",
		"sent":   "We cannot accept your answers at the moment",
	} {
		pages[page].wants(t, 503, "<h1>"+heading+"</h1>").
			header(t, "Content-Type", "text/html; charset=utf-8").
			header(t, "Retry-After", "*")
	}
	s.logHas(`"msg":"request failed","status":503,"cause"`)
	pages["elsewhere"].wants(t, 503).lacks(t, "<form")
	pages["empty"].wants(t, 503).lacks(t, "<form", "still on this page")
	pages["accepted"].wants(t, 503, "We received your answers").lacks(t, "Open the form again")
	pages["opened"].has(t, "Open the form again").lacks(t, "<form")
	sent := pages["sent"].has(t, "Your answers are still on this page", `method="post" action="`+f.path()+`/embed"`)
	kept := url.Values{}
	hidden := regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)
	for _, input := range hidden.FindAllStringSubmatch(sent.Body, -1) {
		kept.Add(input[1], html.UnescapeString(input[2]))
	}
	if !reflect.DeepEqual(kept, fields) {
		t.Errorf("the page keeps %q, want %q", kept, fields)
	}

	w.thaw()
	s.eventually(t, 200, func() answer { return s.get(f.path(), nil) })
	s.sendPage(f, nil, kept).wants(t, 303)
	s.wantsRows(1, "resource.submissions", `answers @> '{"name":"Ada \"Okafor\" <a@b>","days":["Monday","Friday"]}'`)
}
