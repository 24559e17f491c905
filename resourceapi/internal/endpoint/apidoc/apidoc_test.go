package apidoc

import (
	"cmp"
	"fmt"
	"html"
	"maps"
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

// The handlers of the description, of a deployment without a brand of its own, and the pages by path.
var (
	served   = Routes(base, brand.Brand{}, http.NotFoundHandler())
	jsonFile = served[JSONPath]["GET"]
	pageFile = served[PagePath]["GET"]
	pages    = pagesOf(served)
	whole    = strings.Join(slices.Collect(maps.Values(pages)), "")
)

// pagesOf returns the pages that the first page links, and the first page.
func pagesOf(routes map[string]map[string]http.Handler) map[string]string {
	out := map[string]string{PagePath: get(routes[PagePath]["GET"], PagePath).Body.String()}
	for _, found := range regexp.MustCompile(`href="(/v1/docs/[^"#]+)"`).FindAllStringSubmatch(out[PagePath], -1) {
		out[found[1]] = get(routes[PagePath+"/{group}"]["GET"], found[1]).Body.String()
	}
	return out
}

func get(handler http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest("GET", path, nil)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder
}

func TestEndpoint_IsCacheableForFiveMinutesAndHasETag(t *testing.T) {
	for _, name := range []string{JSONPath, PagePath, PagePath + "/webhooks"} {
		first := get(jsonFile, name)
		tag := first.Header().Get("ETag")
		if first.Code != 200 || tag == "" || first.Header().Get("Cache-Control") != "public, max-age=300" {
			t.Errorf("%s: %d %v", name, first.Code, first.Header())
		}
		if again := get(jsonFile, name, "If-None-Match", tag); again.Code != 304 || again.Body.Len() != 0 ||
			again.Header().Get("ETag") != tag {
			t.Errorf("%s: %d %v", name, again.Code, again.Header())
		}
		if other := get(jsonFile, name, "If-None-Match", `"another"`); other.Code != 200 {
			t.Errorf("%s: %d", name, other.Code)
		}
	}
	if answer := get(jsonFile, JSONPath); answer.Header().Get("Access-Control-Allow-Origin") != "*" ||
		answer.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%v", answer.Header())
	}
	if answer := get(jsonFile, PagePath+"/nothing"); answer.Code != 404 || len(pages) < 10 {
		t.Errorf("%d for a page that does not exist; %d exist", answer.Code, len(pages))
	}
}

// The pages load nothing from other hosts, and their policy would block it. The policy allows the page's own style and
// script.
func TestPage_LoadsNothingFromOtherHosts(t *testing.T) {
	for path, page := range pages {
		wantsOwn(t, page, get(pageFile, path).Header())
	}
}

func wantsOwn(t *testing.T, page string, header http.Header) {
	t.Helper()
	policy := header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") || strings.Contains(policy, "unsafe") ||
		!strings.Contains(policy, "; connect-src 'self'; img-src 'self'; ") {
		t.Error(policy)
	}
	for _, loading := range []string{
		"<iframe", `<link rel="stylesheet`, "@import", `url\(`, `<[^>]* src="[^/]`, `<[^>]* src="//`, `\{\{`,
		"ZgotmplZ", "innerHTML", "localStorage", "document.cookie",
	} {
		if regexp.MustCompile(loading).MatchString(page) {
			t.Errorf("the page contains %s", loading)
		}
	}
	for _, element := range []string{"style", "script"} {
		blocks := regexp.MustCompile(`(?s)<`+element+`>(.*?)</`+element+`>`).FindAllStringSubmatch(page, -1)
		if len(blocks) != 1 || strings.Count(page, "<"+element) != 1 ||
			!strings.Contains(policy, element+"-src "+pagestyle.Hash(blocks[0][1])+";") {
			t.Errorf("the policy does not have the hash of the %s", element)
		}
	}
}

// Each page fits a slow connection.
func TestPage_IsAtMost60KBCompressed(t *testing.T) {
	for path := range pages {
		answer := get(pageFile, path, "Accept-Encoding", "gzip")
		if answer.Header().Get("Content-Encoding") != "gzip" || answer.Body.Len() > 60_000 {
			t.Errorf("%s: %v, %d bytes", path, answer.Header(), answer.Body.Len())
		}
	}
}

// Each page links all pages, in the same order: the useful ones come first.
func TestPage_UsefulOperationsComeFirst(t *testing.T) {
	for path, page := range pages {
		var titles []string
		link := regexp.MustCompile(`<a class="title" [^>]*>([^<]+)</a>`)
		for _, found := range link.FindAllStringSubmatch(page, -1) {
			titles = append(titles, found[1])
		}
		first := []string{"Get started", "Programmes", "Forms", "Public forms", "Credential and events"}
		if len(titles) != 2*len(pages) || !slices.Equal(titles[:5], first) ||
			!slices.Equal(titles[len(titles)-2:], []string{"Discovery", "Service"}) {
			t.Errorf("%s: %q", path, titles)
		}
	}
}

// Names, texts and colours of a deployment are escaped in the page.
func TestPage_ShowsBrandOfDeployment(t *testing.T) {
	b, err := (&brand.Options{BrandName: "A<b>&Co", BrandColour: "#7a1fa2"}).Read()
	testkit.Must(t, err)
	page := get(Routes(base, b, http.NotFoundHandler())[PagePath]["GET"], PagePath).Body.String()
	if !strings.Contains(page, "<h1>A&lt;b&gt;&amp;Co API</h1>") || strings.Contains(page, "A<b>") ||
		!strings.Contains(page, "--brand:#7a1fa2") {
		t.Error("the page does not show the brand")
	}
}

// Blocks wider than a phone screen can be scrolled with a keyboard.
func TestPage_CodeBlocksAreFocusable(t *testing.T) {
	if _, rest, found := strings.Cut(whole, "<pre"); !found || strings.Contains(rest, "<pre>") ||
		strings.HasPrefix(rest, ">") {
		t.Error("a code block cannot take the focus")
	}
}

// The page of its group shows every operation, permission, parameter and response of the description, but preflights
// and the files of pages. The first page leads to it from the address that it had when there was one page.
func TestPage_ShowsEveryOperation(t *testing.T) {
	d, left := described(t).document, 0
	for _, o := range d.Operations() {
		id := o.Text("operationId")
		if o.Method == "OPTIONS" || slices.Contains(
			[]string{"readEmbedScript", "readEmbedStyle", "readFormScript", "readHeightScript", "readLogo"}, id) {
			left++
			if strings.Contains(whole, `"`+id+`"`) {
				t.Errorf("%s %s is on a page", o.Method, o.Path)
			}
			continue
		}
		path := PagePath + "/" + anchor(fmt.Sprint(o.List("tags")[0]))
		_, rest, found := strings.Cut(pages[path], `<article aria-labelledby="`+id+`-title">`)
		article, _, _ := strings.Cut(rest, "</article>")
		if !found || !strings.Contains(article, ` id="`+id+`"`) ||
			!strings.Contains(article, "<code>"+o.Path+"</code>") ||
			!strings.Contains(article, html.EscapeString(o.Text("summary"))) {
			t.Errorf("%s %s is not on its page", o.Method, o.Path)
			continue
		}
		if !strings.Contains(pages[PagePath], `<li id="`+id+`" data-page="`+path+`"><a href="`+path+"#"+id+`">`) {
			t.Errorf("%s %s is not on the first page", o.Method, o.Path)
		}
		needs, _ := o.Permissions()
		words, line := id+" "+o.Method+" "+o.Path, strings.Join(needs.Strings(), "</code>, <code>")
		for _, tool := range slices.Sorted(maps.Keys(o.Tools())) {
			of := cmp.Or(strings.Join(o.Tools()[tool].Strings(), ", "), "no permission")
			if !strings.Contains(article, "<li><code>"+tool+"</code> Needs: "+of+"</li>") {
				t.Errorf("%s %s: its page does not have the tool %s", o.Method, o.Path, tool)
			}
		}
		if line != "" {
			words, line = words+" "+strings.Join(needs.Strings(), " "), " · Needs: <code>"+line+"</code>"
		}
		if !strings.Contains(article, `<p class="access">`+access(o)+line+"</p>") ||
			!strings.Contains(pages[PagePath], `data-words="`+words+`"`) {
			t.Errorf("%s %s: its page and its search do not have %q", o.Method, o.Path, needs)
		}
		for _, one := range strings.Split(required.FindString(o.Text("description")), "`") {
			if strings.Contains(one, ":") && !needs.Has(perm.Permission(one)) {
				t.Errorf("%s %s: its page lacks %s, which it requires", o.Method, o.Path, one)
			}
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
	articles := strings.Count(whole, "<article ")
	for language, want := range map[string]string{
		"curl":       ` open data-language="curl"><summary>curl</summary><pre tabindex="0"><code>curl `,
		"Go":         ` data-language="Go"><summary>Go</summary>`,
		"JavaScript": ` data-language="JavaScript"><summary>JavaScript</summary>`,
		"Python":     ` data-language="Python"><summary>Python</summary>`,
	} {
		if got := strings.Count(whole, want); got != articles || articles < 40 {
			t.Errorf("%s: %d examples of %d operations", language, got, articles)
		}
	}
}

// Every link to a page, from every page, has its target there.
func TestPage_LinksHaveTargets(t *testing.T) {
	ids := map[string][]string{}
	for path, page := range pages {
		for _, found := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(page, -1) {
			if slices.Contains(ids[path], found[1]) {
				t.Errorf("%s: two elements have the id %s", path, found[1])
			}
			ids[path] = append(ids[path], found[1])
		}
	}
	link := regexp.MustCompile(`href="(/v1/docs[^"#]*)?#([^"]+)"`)
	for path, page := range pages {
		for _, found := range link.FindAllStringSubmatch(page, -1) {
			if !slices.Contains(ids[cmp.Or(found[1], path)], found[2]) {
				t.Errorf("%s: %s has no target", path, found[0])
			}
		}
	}
}

// A browser gets a page at paths that are no routes; all others get what they got without it.
func TestForBrowsers_AnswersBrowsersAlone(t *testing.T) {
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	handler := ForBrowsers("https://app.example.org", brand.Brand{}, next)
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	for _, c := range []struct {
		method, path, accept string
		status               int
	}{
		{"GET", "/", browser, 200},
		{"HEAD", "/", browser, 200},
		{"GET", "/v1/nothing", browser, 404},
		{"GET", "/", "TEXT/HTML; level=1; q=0.3, application/json;q=0.2", 200},
		{"GET", "/", "text/html, application/json", 418},
		{"GET", "/", "application/json, text/html;q=0.9", 418},
		{"GET", "/", "text/html;q=0", 418},
		{"GET", "/", "*/*", 418},
		{"GET", "/", "", 418},
		{"POST", "/", browser, 418},
		{"GET", "/v1/nothing", "*/*", 418},
	} {
		request, recorder := httptest.NewRequest(c.method, c.path, nil), httptest.NewRecorder()
		request.Header.Set("Accept", c.accept)
		handler.ServeHTTP(recorder, request)
		page := recorder.Body.String()
		if recorder.Code != c.status || recorder.Header().Get("Vary") != "Accept" {
			t.Errorf("%v: %d %v", c, recorder.Code, recorder.Header())
		}
		if c.status == 418 || c.method == "HEAD" {
			continue
		}
		links := strings.Contains(page, `href="https://app.example.org/"`) && strings.Contains(page, `href="/v1/docs"`)
		code := recorder.Header().Get("X-Error-Code")
		missing := strings.Contains(page, "Page not found")
		if !links || missing != (c.status == 404) || missing != (code != "") ||
			!strings.Contains(recorder.Header().Get("Content-Security-Policy"), "frame-ancestors 'none'") {
			t.Errorf("%v: %v\n%s", c, recorder.Header(), page)
		}
	}
	alone := get(ForBrowsers("", brand.Brand{}, next), "/", "Accept", browser).Body.String()
	if strings.Contains(strings.ToLower(alone), "sign in") {
		t.Errorf("a link to sign-in without its address:\n%s", alone)
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
