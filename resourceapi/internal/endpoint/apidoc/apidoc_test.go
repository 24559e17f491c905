package apidoc

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/contract/openapi"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/page/brand"
	"github.com/almonerhq/almoner/shared/page/pagestyle"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

const base = "https://api.example.org"

// The handlers of the description, of a deployment without a brand of its own.
var (
	served   = Routes(base, brand.Brand{})
	jsonFile = served[JSONPath]["GET"]
	pageFile = served[PagePath]["GET"]
	pageText = get(pageFile).Body.String()
)

func get(handler http.Handler, header ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest("GET", "/", nil)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder
}

func TestEndpoint_IsCacheableForFiveMinutesAndHasETag(t *testing.T) {
	for name, handler := range map[string]http.Handler{"JSON": jsonFile, "page": pageFile} {
		first := get(handler)
		tag := first.Header().Get("ETag")
		if first.Code != 200 || tag == "" || first.Header().Get("Cache-Control") != "public, max-age=300" {
			t.Errorf("%s: %d %v", name, first.Code, first.Header())
		}
		if again := get(handler, "If-None-Match", tag); again.Code != 304 || again.Body.Len() != 0 ||
			again.Header().Get("ETag") != tag {
			t.Errorf("%s: %d %v", name, again.Code, again.Header())
		}
		if other := get(handler, "If-None-Match", `"another"`); other.Code != 200 {
			t.Errorf("%s: %d", name, other.Code)
		}
	}
	if answer := get(jsonFile); answer.Header().Get("Access-Control-Allow-Origin") != "*" ||
		answer.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%v", answer.Header())
	}
}

// The page loads nothing from other hosts, and its policy would block it. The policy allows the page's own style and
// script.
func TestPage_LoadsNothingFromOtherHosts(t *testing.T) {
	policy := get(pageFile).Header().Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") || strings.Contains(policy, "unsafe") ||
		!strings.Contains(policy, "; connect-src 'self'; img-src 'self'; ") {
		t.Error(policy)
	}
	for _, loading := range []string{
		"<iframe", `<link rel="stylesheet`, "@import", `url\(`, `<[^>]* src="[^/]`, `<[^>]* src="//`, `\{\{`,
		"ZgotmplZ", "innerHTML", "localStorage", "document.cookie",
	} {
		if regexp.MustCompile(loading).MatchString(pageText) {
			t.Errorf("the page contains %s", loading)
		}
	}
	for _, element := range []string{"style", "script"} {
		blocks := regexp.MustCompile(`(?s)<`+element+`>(.*?)</`+element+`>`).FindAllStringSubmatch(pageText, -1)
		if len(blocks) != 1 || strings.Count(pageText, "<"+element) != 1 ||
			!strings.Contains(policy, element+"-src "+pagestyle.Hash(blocks[0][1])+";") {
			t.Errorf("the policy does not have the hash of the %s", element)
		}
	}
}

// The page with all its operations fits a slow connection.
func TestPage_IsAtMost120KBCompressed(t *testing.T) {
	answer := get(pageFile, "Accept-Encoding", "gzip")
	if answer.Header().Get("Content-Encoding") != "gzip" || answer.Body.Len() > 120_000 {
		t.Errorf("%v, %d bytes", answer.Header(), answer.Body.Len())
	}
}

func TestPage_UsefulOperationsComeFirst(t *testing.T) {
	var titles []string
	for _, found := range regexp.MustCompile(`<h2 id="[^"]+">([^<]+)</h2>\n`).FindAllStringSubmatch(pageText, -1) {
		titles = append(titles, found[1])
	}
	at := slices.Index(titles, "Programmes")
	first := []string{"Programmes", "Forms", "Public forms", "Credential and events"}
	if at < 0 || !slices.Equal(titles[at:at+4], first) ||
		!slices.Equal(titles[len(titles)-2:], []string{"Discovery", "Service"}) {
		t.Errorf("%q", titles)
	}
}

// Names, texts and colours of a deployment are escaped in the page.
func TestPage_ShowsBrandOfDeployment(t *testing.T) {
	b, err := (&brand.Options{BrandName: "A<b>&Co", BrandColour: "#7a1fa2"}).Read()
	testkit.Must(t, err)
	page := get(Routes(base, b)[PagePath]["GET"]).Body.String()
	if !strings.Contains(page, "<h1>A&lt;b&gt;&amp;Co API</h1>") || strings.Contains(page, "A<b>") ||
		!strings.Contains(page, "--brand:#7a1fa2") {
		t.Error("the page does not show the brand")
	}
}

// Blocks wider than a phone screen can be scrolled with a keyboard.
func TestPage_CodeBlocksAreFocusable(t *testing.T) {
	if _, rest, found := strings.Cut(pageText, "<pre"); !found || strings.Contains(rest, "<pre>") ||
		strings.HasPrefix(rest, ">") {
		t.Error("a code block cannot take the focus")
	}
}

// The page shows every operation, parameter and response of the description, but preflights and the files of pages.
func TestPage_ShowsEveryOperation(t *testing.T) {
	d, left := described(t).document, 0
	for _, o := range d.Operations() {
		if o.Method == "OPTIONS" || slices.Contains(
			[]string{"readEmbedScript", "readEmbedStyle", "readFormScript", "readHeightScript", "readLogo"},
			o.Text("operationId"),
		) {
			left++
			if strings.Contains(pageText, `"`+o.Text("operationId")+`"`) {
				t.Errorf("%s %s is on the page", o.Method, o.Path)
			}
			continue
		}
		_, rest, found := strings.Cut(pageText, `<article id="`+o.Text("operationId")+`"`)
		article, _, _ := strings.Cut(rest, "</article>")
		if !found || !strings.Contains(article, "<code>"+o.Path+"</code>") ||
			!strings.Contains(article, html.EscapeString(o.Text("summary"))) {
			t.Errorf("%s %s is not on the page", o.Method, o.Path)
			continue
		}
		for _, p := range d.Parameters(o) {
			if !strings.Contains(article, "<code>"+p.Text("name")+"</code>") {
				t.Errorf("%s %s: parameter %s is not on the page", o.Method, o.Path, p.Text("name"))
			}
		}
		for _, answer := range o.Map("responses") {
			if !strings.Contains(article, "<b>"+answer.Name+"</b>") {
				t.Errorf("%s %s: response %s is not on the page", o.Method, o.Path, answer.Name)
			}
		}
	}
	if left < 5 {
		t.Errorf("only %d operations are left out", left)
	}
}

// The first example of each operation can be read without scripts, and the others be opened.
func TestPage_HasExamplesInFourLanguages(t *testing.T) {
	articles := strings.Count(pageText, "<article ")
	for language, want := range map[string]string{
		"curl":       ` open data-language="curl"><summary>curl</summary><pre tabindex="0"><code>curl `,
		"Go":         ` data-language="Go"><summary>Go</summary>`,
		"JavaScript": ` data-language="JavaScript"><summary>JavaScript</summary>`,
		"Python":     ` data-language="Python"><summary>Python</summary>`,
	} {
		if got := strings.Count(pageText, want); got != articles || articles < 40 {
			t.Errorf("%s: %d examples of %d operations", language, got, articles)
		}
	}
}

func TestPage_InternalLinksHaveTargets(t *testing.T) {
	var ids []string
	for _, found := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(pageText, -1) {
		if slices.Contains(ids, found[1]) {
			t.Errorf("two elements have the id %s", found[1])
		}
		ids = append(ids, found[1])
	}
	for _, found := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(pageText, -1) {
		if !slices.Contains(ids, found[1]) {
			t.Errorf("#%s has no target", found[1])
		}
	}
}

func TestFields_ResolvesReferencesAndAllOf(t *testing.T) {
	r := described(t)
	var known []string
	for _, entry := range perm.All() {
		known = append(known, string(entry.ID))
	}
	ref := func(name string) openapi.Object {
		return openapi.Object{{Name: "$ref", Value: "#/components/schemas/" + name}}
	}
	for schema, want := range map[string][]string{
		"NewProgramme": {"name string, up to 200 characters", "status draft | active | completed | archived"},
		"NewForm":      {"allowedOrigins array of string, up to 20 items", "retentionMonths integer, default 24"},
		"ProgrammePage": {
			"data array of object, up to 200 items", "data[].status draft | active | completed | archived",
			"data[].endsOn date | null", "meta.nextCursor string",
		},
		"RegisteredApplication": {"clientId UUID", "clientSecret string"},
		"Forbidden":             {"error.code FORBIDDEN | MODULE_NOT_ENABLED", "error.fields object"},
		"Introspection":         {"permissions array of " + strings.Join(known, " | ")},
	} {
		var got []string
		for _, f := range r.fields(ref(schema)) {
			got = append(got, f.Name+" "+f.Type)
		}
		for _, one := range want {
			if !slices.Contains(got, one) {
				t.Errorf("%s: %q is not among %q", schema, one, got)
			}
		}
	}
	if slices.ContainsFunc(r.fields(ref("ProgrammeChange")), func(f field) bool { return f.Name == "status" }) {
		t.Error("a forbidden member is listed")
	}
}

func TestOperation_ShowsCurlCommand(t *testing.T) {
	for sent, want := range map[string]string{
		"GET /healthz": "curl " + base + "/healthz",
		"POST /v1/programmes/programmes/7/transitions": "curl " + base +
			"/v1/programmes/programmes/0199a1c2-7f41-7c55-8b9e-3a4f5d6e7f80/transitions \\\n" +
			"  -H \"Authorization: Bearer $TOKEN\" \\\n  -H \"X-Tenant-Id: $WORKSPACE\" \\\n" +
			"  -H 'If-Match: \"3\"' \\\n" +
			"  -H 'Idempotency-Key: import-2026-07-31' \\\n  -H 'Content-Type: application/json' \\\n" +
			"  --data-binary '{\n  \"to\": \"active\"\n}'",
		"POST /v1/account/oauth/introspect": "curl " + base + "/v1/account/oauth/introspect \\\n  -u " +
			"\"$CLIENT_ID:$CLIENT_SECRET\" \\\n  --data-urlencode 'token=alm_pat_…'",
	} {
		if got := operationOf(t, sent).Samples[0].Text; got != want {
			t.Errorf("%s:\n%s\nwant\n%s", sent, got, want)
		}
	}
}

func TestDescription_SearchLengthMatchesEnforcedLimit(t *testing.T) {
	d := described(t).document
	for _, o := range d.Operations() {
		for _, one := range o.List("parameters") {
			if p := d.Resolve(one.(openapi.Object)); p.Text("name") == "q" &&
				fmt.Sprint(p.Map("schema").Value("maxLength")) != fmt.Sprint(programme.MaxSearch) {
				t.Errorf("%s %s: maxLength %v of q, not %d",
					o.Method, o.Path, p.Map("schema").Value("maxLength"), programme.MaxSearch)
			}
		}
	}
}
