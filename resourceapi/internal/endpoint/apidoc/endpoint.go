// Package apidoc serves the OpenAPI description of package openapi, as JSON and as HTML pages, and the pages that
// browsers get at other paths.
//
// The first page of the documentation has the introduction and a list of all operations; each group of operations has a
// page, on which they unfold. All are built at the first request for one of them and are the same for every caller.
// The pages work without their script, which adds a search, copy buttons and requests with a token that the user
// pastes, and leads from an address such as /v1/docs#listProgrammes to the page of the operation. The script stores the
// token in sessionStorage and sends it only to this API. The pages' Content-Security-Policy allows no other host.
package apidoc

import (
	"bytes"
	"cmp"
	_ "embed"
	"html/template"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"

	"github.com/almonerhq/almoner/shared/contract/openapi"
	"github.com/almonerhq/almoner/shared/page/brand"
	"github.com/almonerhq/almoner/shared/page/pagestyle"
)

// Paths of the description, below the base address.
const (
	JSONPath = "/v1/openapi.json"
	PagePath = "/v1/docs"
)

// logoPath is the path of the logo, which package publicforms serves.
const logoPath = "/v1/engage/public/logo"

// Routes returns the handlers of the description of the API at baseURL, which has no trailing slash, by path and
// method. The description is built at the first request, since that takes longer than the rest of the start of a
// process. The handler missing answers requests for the pages of other groups.
func Routes(baseURL string, b brand.Brand, missing http.Handler) map[string]map[string]http.Handler {
	files := sync.OnceValue(func() map[string]http.Handler {
		built, err := build(baseURL, b)
		if err != nil {
			panic(err) // only if the embedded description is invalid
		}
		return built
	})
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if file := files()[r.URL.Path]; file != nil {
			file.ServeHTTP(w, r)
			return
		}
		missing.ServeHTTP(w, r)
	})
	routes := map[string]map[string]http.Handler{}
	for _, path := range []string{JSONPath, PagePath, PagePath + "/{group}"} {
		routes[path] = map[string]http.Handler{"GET": serve}
	}
	return routes
}

// build returns the handlers of the description by path. Scripts of any origin may read the JSON.
func build(baseURL string, b brand.Brand) (map[string]http.Handler, error) {
	document, err := openapi.New(baseURL)
	if err != nil {
		return nil, err
	}
	pages, err := render(document, baseURL, b)
	if err != nil {
		return nil, err
	}
	files := map[string]http.Handler{JSONPath: pagestyle.File(document.JSON(), map[string]string{
		"Content-Type":                "application/json",
		"Access-Control-Allow-Origin": "*",
	})}
	header := pageHeader(b, "script-src "+pagestyle.Hash(script)+"; connect-src 'self'; ")
	for path, content := range pages {
		files[path] = pagestyle.File(content, header)
	}
	return files, nil
}

// pageHeader returns the header of a page with the style sheet. allowed is what its policy allows besides the style and
// the logo.
func pageHeader(b brand.Brand, allowed string) map[string]string {
	return map[string]string{
		"Content-Type": "text/html; charset=utf-8",
		"Content-Security-Policy": "default-src 'none'; style-src " + pagestyle.Hash(style(b)) + "; " + allowed +
			"img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		"Referrer-Policy": "no-referrer",
	}
}

//go:embed assets/page.html
var pageHTML string

//go:embed assets/page.css
var pageCSS string

//go:embed assets/page.js
var script string

// style returns the style sheet of the page.
func style(b brand.Brand) string {
	sheet := brand.Tokens() + pageCSS
	if colour, own := b.Colour(); own {
		sheet += pagestyle.Accent(colour)
	}
	return sheet
}

// A page is the data of the template.
type page struct {
	Summary        string
	BaseURL        string
	JSONPath, Page string        // paths of the description and of the first page
	Intro, Guide   template.HTML // the introduction up to its first chapter, and its other chapters
	Chapters       []chapter     // of the introduction
	Groups         []group       // all
	At             string        // path of this page
	Here           *group        // of this page; nil on the first page
	Before, After  *group        // the neighbours of Here
	Brand          string
	Logo           string // path
	Style          template.CSS
	Script         template.JS
}

// A chapter is a heading of the introduction.
type chapter struct{ Anchor, Title string }

// A group is the operations of one tag.
type group struct {
	Anchor, Title string
	Path          string // of its page
	Text          template.HTML
	Operations    []operation
}

// render returns the pages by path.
func render(d *openapi.Document, baseURL string, b brand.Brand) (map[string][]byte, error) {
	parsed, err := template.New("page").Parse(pageHTML)
	if err != nil {
		return nil, err
	}
	info := d.Root.Map("info")
	view := page{
		Summary:  info.Text("summary"),
		BaseURL:  baseURL,
		JSONPath: JSONPath,
		Page:     PagePath,
		Groups:   groups(d, baseURL),
		At:       PagePath,
		Brand:    b.Name(),
		Logo:     logoPath,
		Style:    template.CSS(style(b)),
		Script:   template.JS(script),
	}
	opening, rest, _ := strings.Cut(info.Text("description"), "\n## ")
	first, others, _ := strings.Cut(rest, "\n## ")
	view.Intro, view.Guide = prose(opening+"\n## "+first), prose("## "+others)
	for line := range strings.Lines(info.Text("description")) {
		if title, isHeading := strings.CutPrefix(strings.TrimSpace(line), "## "); isHeading {
			view.Chapters = append(view.Chapters, chapter{anchor(title), title})
		}
	}
	pages := map[string][]byte{}
	for i := -1; i < len(view.Groups); i++ { // -1: the first page
		if i >= 0 {
			view.Here, view.At, view.Before, view.After = &view.Groups[i], view.Groups[i].Path, nil, nil
		}
		if i > 0 {
			view.Before = &view.Groups[i-1]
		}
		if i >= 0 && i+1 < len(view.Groups) {
			view.After = &view.Groups[i+1]
		}
		var out bytes.Buffer
		if err := parsed.Execute(&out, view); err != nil {
			return nil, err
		}
		pages[view.At] = out.Bytes()
	}
	return pages, nil
}

// groups returns the groups that have operations, in the order of the pages.
func groups(d *openapi.Document, baseURL string) (all []group) {
	reader := reader{d, baseURL}
	for _, tag := range d.Root.List("tags") {
		tag, _ := tag.(openapi.Object)
		name := tag.Text("name")
		g := group{Anchor: anchor(name), Title: name, Text: prose(tag.Text("description"))}
		g.Path = PagePath + "/" + g.Anchor
		for _, o := range d.Operations() {
			if slices.Contains(o.List("tags"), any(name)) && !isForBrowsersOnly(d, o) {
				g.Operations = append(g.Operations, reader.operation(o))
			}
		}
		if len(g.Operations) > 0 {
			all = append(all, g)
		}
	}
	slices.SortStableFunc(all, func(a, b group) int { return cmp.Compare(rank(a.Title), rank(b.Title)) })
	return all
}

// rank orders the groups: first the groups that most readers need, then the others, then groups about the service.
func rank(title string) int {
	first := []string{"Programmes", "Forms", "Public forms", "Credential and events", "Webhooks"}
	if at := slices.Index(first, title); at >= 0 {
		return at
	}
	if title == "Discovery" || title == "Service" {
		return len(first) + 1
	}
	return len(first)
}

// isForBrowsersOnly reports whether only browsers call the operation: a preflight, or a file that a page loads. The
// page leaves these out; the JSON description has them.
func isForBrowsersOnly(d *openapi.Document, o openapi.Operation) bool {
	if o.Method == "OPTIONS" {
		return true
	}
	content := d.Resolve(o.Map("responses").Map("200")).Map("content")
	for _, media := range content {
		if media.Name != "text/css" && media.Name != "text/javascript" && !strings.HasPrefix(media.Name, "image/") {
			return false
		}
	}
	return len(content) > 0
}

// heading is a heading of a description, as goldmark writes it.
var heading = regexp.MustCompile(`<h2 id="([^"]+)">(.*?)</h2>`)

// prose converts the Markdown of a description to HTML. Raw HTML in it is dropped.
func prose(text string) template.HTML {
	markdown := goldmark.New(goldmark.WithExtensions(extension.Table),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	var out bytes.Buffer
	if err := markdown.Convert([]byte(text), &out); err != nil { // writing to memory cannot fail
		return template.HTML(template.HTMLEscapeString(text))
	}
	// A focusable block can be scrolled with a keyboard.
	scrolling := strings.ReplaceAll(out.String(), "<pre>", `<pre tabindex="0">`)
	// The text is our own and was rendered without raw HTML.
	return template.HTML(heading.ReplaceAllString(scrolling, `<h2 id="$1"><a href="#$1">$2</a></h2>`))
}

func anchor(title string) string {
	return strings.ReplaceAll(strings.ToLower(title), " ", "-")
}
