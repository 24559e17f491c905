package app

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/page/brand"
	"github.com/almonerhq/almoner/shared/page/pagestyle"
)

// withTexts is allTypes with an introduction, a thank-you text and a language.
var withTexts = strings.Replace(allTypes, "{", `{"introduction":"Come <b>and</b> help.\r\n\r\nBring gloves.",`+
	`"thankYou":"See you on Saturday.","lang":"cy",`, 1)

func TestForms_TextsAreStoredAndChanged(t *testing.T) {
	s := newService(t)
	_, h := s.workspace()
	f := s.makeForm(h, withTexts)
	path := formsPath + "/" + f.ID.String()
	for _, want := range []string{
		`"introduction":"Come \u003cb\u003eand\u003c/b\u003e help.\n\nBring gloves."`,
		`"thankYou":"See you on Saturday."`, `"lang":"cy"`,
	} {
		body := s.get(path, h).Body
		body = strings.NewReplacer("<", `\u003c`, ">", `\u003e`).Replace(body)
		if !strings.Contains(body, want) {
			t.Errorf("%s lacks %s", body, want)
		}
	}
	s.get(f.path(), nil).lacks(t, "Bring gloves")
	plain := s.makeForm(h, allTypes)
	if a := s.get(formsPath+"/"+plain.ID.String(), h); !strings.Contains(a.Body, `"introduction":"","thankYou":"",`+
		`"lang":"en"`) {
		t.Errorf("%s", a.Body)
	}
	before := s.events(h, "")
	s.patch(f, h, `{"introduction":"","thankYou":"Thank you.","lang":"en"}`).
		wants(t, 200, `"introduction":"","thankYou":"Thank you.","lang":"en"`).
		header(t, "ETag", `"2"`)
	for i, change := range []string{
		`{"lang":"cy"}`, `{"lang":"en"}`, `{"thankYou":"Thanks."}`, `{"introduction":"Hello."}`,
	} {
		if a := s.patch(f, h, change); a.Header.Get("ETag") != fmt.Sprintf(`"%d"`, i+3) {
			t.Errorf("%s: version %s", change, a.Header.Get("ETag"))
		}
	}
	s.patch(f, h, `{"thankYou":"Thanks."}`).header(t, "ETag", `"6"`)
	after := s.events(h, fmt.Sprintf("?after=%d", before.Data[len(before.Data)-1].Sequence))
	if got := texts(after.Data); !slices.Equal(got, []string{
		"form.updated introduction lang thankYou", "form.updated lang", "form.updated lang", "form.updated thankYou",
		"form.updated introduction",
	}) {
		t.Errorf("%q", got)
	}
	s.patch(f, h, `{"title":"Another","allowedOrigins":[],"enabled":false}`)
	last := s.events(h, fmt.Sprintf("?after=%d", after.Data[len(after.Data)-1].Sequence))
	if got := texts(last.Data); !slices.Equal(got, []string{"form.updated allowedOrigins enabled title"}) {
		t.Errorf("the fields of before are not in events: %q", got)
	}
}

func TestForms_TextsHaveRules(t *testing.T) {
	s := newService(t)
	h, f := s.form()
	for member, values := range map[string][]string{
		"introduction": {
			`null`, `7`, `"a\u202eb"`, `"a\tb"`, `"a\rb"`, `"a\u200bb"`, `"\u2800"`,
			`"` + strings.Repeat("x", 2001) + `"`,
		},
		"thankYou": {`null`, `[]`, `"line\nhidden\u200e"`, `"a\u0301\u0301\u0301"`},
		"lang":     {`null`, `""`, `"EN"`, `"xx"`, `"../en"`},
	} {
		for _, value := range values {
			body := `{"` + member + `":` + value
			made := s.do("POST", formsPath, h, strings.Replace(allTypes, "{", body+",", 1))
			for _, a := range []answer{made, s.patch(f, h, body+"}")} {
				a.wants(t, 400, `"fields":{"`+member+`":`)
			}
		}
	}
	long := `{"introduction":"` + strings.Repeat("é", 1999) + `\n"}`
	s.patch(f, h, long).wants(t, 200)
	s.patch(f, h, `{"lang":"xx"}`).has(t, "cy, en")
}

func TestPublicPage_UsesLanguageOfForm(t *testing.T) {
	s := newService(t)
	_, h := s.workspace()
	f := s.makeForm(h, withTexts)
	a := s.get(f.path()+"/embed", nil)
	for _, piece := range []string{
		`<html lang="cy" dir="ltr">`, `<p class="lead own">Come &lt;b&gt;and&lt;/b&gt; help.</p>`,
		`<p class="lead own">Bring gloves.</p>`, `<span class="optional">(dewisol)</span>`,
		`<button type="submit">Anfon</button>`,
	} {
		a.has(t, piece)
	}
	fields := goodFields(s.filled(f))
	fields.Set("a.email", "ada at example")
	fields.Del("a.privacy")
	wrong := s.sendPage(f, nil, fields)
	if found := problems(wrong); found["f1"] != "Rhowch gyfeiriad e-bost, er enghraifft enw@example.org." ||
		found["f9"] != "Cytunwch i hyn er mwyn anfon y ffurflen." ||
		!strings.Contains(wrong.Body, "<title>Cywirwch: Volunteer with us</title>") {
		t.Errorf("%v %s", found, wrong.Body)
	}
	urlencoded := header{"Content-Type": "application/x-www-form-urlencoded"}
	english := s.do("POST", f.path()+"/embed?lang=en&frame=1", urlencoded, fields.Encode())
	if found := problems(english); found["f9"] != "Please agree to this to send the form." ||
		!strings.Contains(english.Body, `<html lang="en-GB" dir="ltr" data-theme="light">`) ||
		!strings.Contains(english.Body, `embed?frame=1&amp;lang=en"`) {
		t.Errorf("%v %s", found, english.Body)
	}
	script := s.submit(f, nil, submissionOf(s.submissionToken(f), map[string]any{"name": "Ada"}))
	script.wants(t, 400, "Cytunwch i hyn er mwyn anfon y ffurflen.")
	done := s.sendPage(f, nil, goodFields(s.filled(f)))
	s.get(done.Header.Get("Location"), nil).
		has(t, "See you on Saturday.", "Rydym yn eu prosesu nawr.").
		lacks(t, "Bring gloves")
}

// A closed form looks like one that does not exist, in any language.
func TestPublicPage_ClosedFormDoesNotShowItsLanguage(t *testing.T) {
	s := newService(t)
	_, h := s.workspace()
	f := s.makeForm(h, withTexts)
	s.patch(f, h, `{"enabled":false}`)
	for query, want := range map[string]string{
		"":         "This form is not available",
		"?lang=cy": "Nid yw&#39;r ffurflen hon ar gael",
		"?lang=xx": "This form is not available",
	} {
		closed := s.get(f.path()+"/embed"+query, nil)
		unknown := s.get(publicPath+"/forms/alm_embed_79CsfDZMrsGJZC1HqbCBeiHq1dPfHB/embed"+query, nil)
		if closed.Status != 404 || closed.Body != unknown.Body || !strings.Contains(closed.Body, want) {
			t.Errorf("%q: %d %s", query, closed.Status, closed.Body)
		}
	}
}

func TestPublicPage_ThemeAndAccentOfWebsite(t *testing.T) {
	s := newService(t)
	_, f := s.form()
	for query, want := range map[string]string{
		"":                        `<html lang="en-GB" dir="ltr">`,
		"?frame=1":                `<html lang="en-GB" dir="ltr" data-theme="light">`,
		"?frame=1&theme=auto":     `<html lang="en-GB" dir="ltr">`,
		"?frame=1&theme=dark":     `<html lang="en-GB" dir="ltr" data-theme="dark">`,
		"?theme=light":            `<html lang="en-GB" dir="ltr" data-theme="light">`,
		"?frame=1&theme=%22onx=1": `<html lang="en-GB" dir="ltr" data-theme="light">`,
	} {
		a := s.get(f.path()+"/embed"+query, nil)
		a.wants(t, 200, want).lacks(t, "<style>")
	}
	pale, err := brand.Parse("ffe08a")
	if err != nil {
		t.Fatal(err)
	}
	style := pagestyle.Accent(pale)
	a := s.get(f.path()+"/embed?frame=1&theme=dark&accent=FFE08A", nil)
	if !strings.Contains(a.Body, "<style>"+style+"</style>") ||
		!strings.Contains(a.Header.Get("Content-Security-Policy"), "style-src 'self' "+pagestyle.Hash(style)+";") ||
		!strings.Contains(a.Body, `embed?accent=ffe08a&amp;frame=1&amp;theme=dark"`) {
		t.Errorf("%v %s", a.Header, a.Body)
	}
	for _, accent := range []string{"red", "12345", "}a{color:red", "%3C/style%3E", "url(x)"} {
		a := s.get(f.path()+"/embed?accent="+accent, nil)
		if a.Status != 200 || strings.Contains(a.Body, "<style>") ||
			!strings.Contains(a.Header.Get("Content-Security-Policy"), "style-src 'self';") {
			t.Errorf("%s: %d %v", accent, a.Status, a.Header)
		}
	}
}

func TestPublicPage_ShowsBrandOfDeployment(t *testing.T) {
	s := newService(t)
	_, f := s.form()
	for _, query := range []string{"", "?frame=1"} {
		s.get(f.path()+"/embed"+query, nil).has(t, `src="`+publicPath+`/logo" alt=""`, "<span>Almoner</span>")
	}
	if a := s.get(publicPath+"/logo", nil); !strings.HasSuffix(a.Header.Get("Content-Security-Policy"), "; sandbox") ||
		a.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%v", a.Header)
	}
}
