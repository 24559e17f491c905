package app

import (
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

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
	t.Parallel()
	s := ownService(t)
	h, f := s.form()
	a := s.get(f.path()+"/embed?frame=1", nil)
	for _, piece := range []string{
		`<form method="post" action="` + f.path() + `/embed?frame=1"`, `name="submissionToken" value="`,
		`<label for="f0">Your name</label>`, `type="email" autocomplete="email"`, `<legend>Which days`,
		`<option>Kitchen</option>`, `I agree that my answers are kept for a year.`, `<button type="submit">`,
	} {
		a.has(t, piece)
	}
	if a.Status != 200 || a.Header.Get("Content-Type") != "text/html; charset=utf-8" ||
		a.Header.Get("Cache-Control") != "no-store" || a.Header.Get("X-Frame-Options") != "" ||
		!strings.HasPrefix(a.Header.Get("Content-Security-Policy"), "default-src 'none'; ") ||
		!strings.HasSuffix(a.Header.Get("Content-Security-Policy"), "; frame-ancestors "+goodOrigin) {
		t.Errorf("%d %v", a.Status, a.Header)
	}
	nowhere := s.makeForm(
		h,
		`{"title":"T","allowedOrigins":[],"fields":[{"name":"idea","label":"Idea","type":"text"}]}`,
	)
	if policy := s.get(nowhere.path()+"/embed", nil).Header.Get("Content-Security-Policy"); !strings.HasSuffix(
		policy,
		"; frame-ancestors 'none'",
	) {
		t.Errorf("%s", policy)
	}

	done := s.sendPage(f, header{"Origin": base}, goodFields(s.filled(f)))
	if done.Status != 303 || !strings.HasPrefix(done.Header.Get("Location"), f.path()+"/embed?") {
		t.Fatalf("%d %v %s", done.Status, done.Header, done.Body)
	}
	thanks := s.get(done.Header.Get("Location"), nil)
	thanks.wants(t, 200, "We received your answers", `http-equiv="refresh"`)
	s.run()
	s.until("processed", func() bool {
		return s.rows("resource.submissions", "status = 'processed'") == 1
	})
	thanks = s.get(done.Header.Get("Location"), nil)
	if strings.Contains(thanks.Body, `http-equiv="refresh"`) ||
		!strings.Contains(thanks.Body, "We have processed them") {
		t.Errorf("%s", thanks.Body)
	}
	if n := s.Count(`select count(*) from resource.submissions
		where {mine} and answers = '{"name":"Ada Okafor","email":"Ada@Example.org","phone":"+44 20 7946 0958",
		"hours":3.5,"from":"2026-02-28","area":"Garden","days":["Monday","Friday"],
		"about":"One line.\nAnother line.","news":false,"privacy":true}'`); n != 1 {
		t.Error("the stored answers are not those typed")
	}
	for _, wrong := range []string{
		"?submission=x&token=y",
		strings.TrimPrefix(done.Header.Get("Location"), f.path()+"/embed") + "x",
	} {
		s.get(f.path()+"/embed"+wrong, nil).wants(t, 404)
	}
	query := strings.SplitN(done.Header.Get("Location"), "?", 2)[1]
	s.get(nowhere.path()+"/embed?"+query, nil).wants(t, 404)
}

func TestPublicPage_ShowsAnswersAndProblemsAgain(t *testing.T) {
	s := newService(t)
	_, f := s.form()
	fields := goodFields(s.filled(f))
	fields.Set("a.name", `<b>"Ada"</b>`)
	fields.Set("a.email", "ada at example")
	fields.Set("a.hours", "3,5")
	fields.Set("a.area", "Roof")
	fields.Del("a.privacy")
	a := s.sendPage(f, nil, fields)
	found := problems(a)
	if a.Status != 400 || len(found) != 4 || found["f1"] == "" || found["f3"] == "" || found["f5"] == "" ||
		found["f9"] == "" {
		t.Fatalf("%d %v", a.Status, found)
	}
	for _, piece := range []string{
		`Please correct 4 answers.`, `href="#f1"`, `value="&lt;b&gt;&#34;Ada&#34;&lt;/b&gt;"`, `value="ada at example"`,
		`aria-invalid="true" aria-describedby="f1-problem"`, `value="3,5"`, `value="Friday" checked`,
		"One line.\r\nAnother line.</textarea>", `value="` + fields.Get("submissionToken") + `"`,
	} {
		a.has(t, piece)
	}
	if strings.Contains(a.Body, `value="Tuesday" checked`) || strings.Contains(a.Body, "<b>") {
		t.Error("the page shows other answers, or does not escape them")
	}
	if s.submissions() != 0 {
		t.Error("an invalid submission was stored")
	}
	s.sendPage(f, nil, goodFields(fields.Get("submissionToken"))).wants(t, 303)
	s.sendPage(f, nil, goodFields(fields.Get("submissionToken"))).wants(t, 409, "already sent")
	old := s.sendPage(f, nil, goodFields(s.tokens.ForSubmission(f.ID, time.Now().Add(-time.Hour))))
	old.wants(t, 400, "more than an hour", `value="Ada Okafor"`)
}

func TestPublicPage_AcceptsOnlyOwnAndAllowedOrigins(t *testing.T) {
	s := newService(t)
	_, f := s.form()
	for _, origin := range []string{otherOrigin, "null"} {
		s.sendPage(f, header{"Origin": origin}, goodFields(s.filled(f))).wants(t, 403, "cannot be sent from here")
	}
	if s.submissions() != 0 {
		t.Error("a submission of a refused origin was stored")
	}
	for _, origin := range []string{base, goodOrigin} {
		s.sendPage(f, header{"Origin": origin}, goodFields(s.filled(f))).wants(t, 303)
	}
	s.do("POST", f.path()+"/embed", header{"Content-Type": "application/json"}, "{}").wants(t, 400)
	s.sendPage(f, nil, url.Values{"a.about": {strings.Repeat("x", 64<<10)}}).wants(t, 413, "too long")
}

func TestPublicPage_TrapAndMinimumTimeApplyToPageOnly(t *testing.T) {
	s := newWorker(t)
	_, f := s.form()
	quick := s.sendPage(f, nil, goodFields(s.submissionToken(f)))
	if quick.Status != 400 || !strings.Contains(quick.Body, "very quick") || s.submissions() != 0 {
		t.Errorf("%d, %d stored", quick.Status, s.submissions())
	}
	s.accepted(f) // scripts have no minimum time
	fields := goodFields(s.filled(f))
	fields.Set("website", "https://buy.example")
	trapped := s.sendPage(f, nil, fields)
	trapped.wants(t, 303)
	s.until("rejected", func() bool {
		return s.rows("resource.submissions", "status = 'rejected'") == 1
	})
	page := s.get(trapped.Header.Get("Location"), nil)
	if !strings.Contains(page.Body, "could not accept") ||
		!strings.Contains(page.Body, html.EscapeString(engage.ReasonTrapped)) {
		t.Errorf("%s", page.Body)
	}
	s.until("the other is processed", func() bool { return s.supporters() == 1 })
	const rejected = `select count(*) from resource.submissions
		where {mine} and status = 'rejected' and supporter_id is null`
	if n := s.Count(rejected); n != 1 {
		t.Errorf("%d", n)
	}
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
		a := s.get(publicPath+"/"+name, nil)
		if a.Status != 200 || !strings.HasPrefix(a.Header.Get("Content-Type"), kind) ||
			a.Header.Get("Cache-Control") != "public, max-age=300" ||
			a.Header.Get("Cross-Origin-Resource-Policy") != "cross-origin" || len(a.Body) < 100 {
			t.Errorf("%s: %d %v", name, a.Status, a.Header)
		}
		s.get(publicPath+"/"+name, header{"If-None-Match": a.Header.Get("ETag")}).wants(t, 304)
		body := strings.ReplaceAll(a.Body, "http://www.w3.org/2000/svg", "")
		if strings.Contains(body, "http://") || strings.Contains(body, "https://") {
			t.Errorf("%s refers to another host", name)
		}
	}
}
