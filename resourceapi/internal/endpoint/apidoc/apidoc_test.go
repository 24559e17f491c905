package apidoc

import (
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/openapi"
	"github.com/almonerhq/almoner/shared/perm"
)

const base = "https://api.example.org"

func served(t *testing.T) *Endpoint {
	t.Helper()
	e, err := New(base)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

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
	e := served(t)
	for name, handler := range map[string]http.Handler{"JSON": e.JSON(), "page": e.Page()} {
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
	if answer := get(e.JSON()); answer.Header().Get("Access-Control-Allow-Origin") != "*" ||
		answer.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%v", answer.Header())
	}
}

// The page names no URL that a browser would load, and its policy would block one.
func TestPage_LoadsNoResources(t *testing.T) {
	answer := get(served(t).Page())
	page, policy := answer.Body.String(), answer.Header().Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") || strings.Contains(policy, "unsafe") {
		t.Error(policy)
	}
	for _, loading := range []string{
		"<script",
		"<img",
		"<iframe",
		"<link rel=\"stylesheet",
		"@import",
		`url\(`,
		`<[^>]* src=`,
		`\{\{`,
		"ZgotmplZ",
	} {
		if regexp.MustCompile(loading).MatchString(page) {
			t.Errorf("the page contains %s", loading)
		}
	}
	if blocks := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindAllStringSubmatch(page, -1); len(blocks) != 1 ||
		blocks[0][1] != style {
		t.Error("the hash of the style is not in the policy")
	}
}

// Blocks wider than a phone screen can be scrolled with a keyboard.
func TestPage_CodeBlocksAreFocusable(t *testing.T) {
	page := get(served(t).Page()).Body.String()
	if _, rest, found := strings.Cut(page, "<pre"); !found || strings.Contains(rest, "<pre>") ||
		strings.HasPrefix(rest, ">") {
		t.Error("a code block cannot take the focus")
	}
}

// The page shows every operation, parameter and response of the description.
func TestPage_ShowsEveryOperation(t *testing.T) {
	page := get(served(t).Page()).Body.String()
	d, err := openapi.New(base)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range d.Operations() {
		_, rest, found := strings.Cut(page, `<article id="`+o.Text("operationId")+`"`)
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
}

func TestPage_InternalLinksHaveTargets(t *testing.T) {
	page := get(served(t).Page()).Body.String()
	var ids []string
	for _, found := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if slices.Contains(ids, found[1]) {
			t.Errorf("two elements have the id %s", found[1])
		}
		ids = append(ids, found[1])
	}
	for _, found := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if !slices.Contains(ids, found[1]) {
			t.Errorf("#%s has no target", found[1])
		}
	}
}

func TestFields_ResolvesReferencesAndAllOf(t *testing.T) {
	d, err := openapi.New(base)
	if err != nil {
		t.Fatal(err)
	}
	r := reader{d, base}
	var known []string
	for _, entry := range perm.All() {
		known = append(known, string(entry.ID))
	}
	ref := func(name string) openapi.Object {
		return openapi.Object{{Name: "$ref", Value: "#/components/schemas/" + name}}
	}
	for schema, want := range map[string][]string{
		"ProgrammePage": {
			"data array of object",
			"data[].status draft | active | completed | archived",
			"data[].endsOn date | null",
			"meta.nextCursor string",
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
	for _, f := range r.fields(ref("ProgrammeChange")) {
		if f.Name == "status" {
			t.Error("a forbidden member is listed")
		}
	}
}

func TestOperation_ShowsCurlCommand(t *testing.T) {
	d, err := openapi.New(base)
	if err != nil {
		t.Fatal(err)
	}
	r := reader{d, base}
	for sent, want := range map[string]string{
		"GET /healthz": "curl " + base + "/healthz",
		"POST /v1/programmes/programmes/7/transitions": "curl " + base +
			"/v1/programmes/programmes/0199a1c2-7f41-7c55-8b9e-3a4f5d6e7f80/transitions \\\n" +
			"  -H \"Authorization: Bearer $TOKEN\" \\\n  -H \"X-Tenant-Id: $TENANT\" \\\n  -H 'If-Match: \"3\"' \\\n" +
			"  -H 'Idempotency-Key: import-2026-07-31' \\\n  -H 'Content-Type: application/json' \\\n" +
			"  --data-binary '{\n  \"to\": \"active\"\n}'",
		"POST /v1/account/oauth/introspect": "curl " + base + "/v1/account/oauth/introspect \\\n  -u " +
			"\"$CLIENT_ID:$CLIENT_SECRET\" \\\n  --data-urlencode 'token=alm_pat_…'",
	} {
		method, path, _ := strings.Cut(sent, " ")
		o, _ := d.Find(method, path)
		if got := r.operation(o).Curl; got != want {
			t.Errorf("%s:\n%s\nwant\n%s", sent, got, want)
		}
	}
}
