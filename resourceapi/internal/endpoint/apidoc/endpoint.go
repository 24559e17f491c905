// Package apidoc serves the OpenAPI description of package openapi, as JSON and as an HTML page.
//
// Both are built at the first request for one of them and are the same for every caller. The page works without its
// script, which adds a filter, copy buttons and requests with a token that the user pastes. The script stores the token
// in sessionStorage and sends it only to this API. The page's Content-Security-Policy allows no other host.
package apidoc

import (
	"bytes"
	"cmp"
	_ "embed"
	"html/template"
	"net/http"
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
// process.
func Routes(baseURL string, b brand.Brand) map[string]map[string]http.Handler {
	files := sync.OnceValue(func() map[string]http.Handler {
		built, err := build(baseURL, b)
		if err != nil {
			panic(err) // only if the embedded description is invalid
		}
		return built
	})
	routes := map[string]map[string]http.Handler{}
	for _, path := range []string{JSONPath, PagePath} {
		routes[path] = map[string]http.Handler{"GET": http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) { files()[path].ServeHTTP(w, r) },
		)}
	}
	return routes
}

// build returns the handlers of the description by path. Scripts of any origin may read the JSON.
func build(baseURL string, b brand.Brand) (map[string]http.Handler, error) {
	document, err := openapi.New(baseURL)
	if err != nil {
		return nil, err
	}
	page, err := render(document, baseURL, b)
	if err != nil {
		return nil, err
	}
	policy := "default-src 'none'; style-src " + pagestyle.Hash(style(b)) + "; script-src " + pagestyle.Hash(script) +
		"; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	return map[string]http.Handler{
		JSONPath: pagestyle.File(document.JSON(), map[string]string{
			"Content-Type":                "application/json",
			"Access-Control-Allow-Origin": "*",
		}),
		PagePath: pagestyle.File(page, map[string]string{
			"Content-Type":            "text/html; charset=utf-8",
			"Content-Security-Policy": policy,
			"Referrer-Policy":         "no-referrer",
		}),
	}, nil
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
	Title, Summary string
	BaseURL        string
	JSONPath       string
	Intro          template.HTML
	Chapters       []chapter // of the introduction
	Groups         []group
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
	Text          template.HTML
	Operations    []operation
}

func render(d *openapi.Document, baseURL string, b brand.Brand) ([]byte, error) {
	parsed, err := template.New("page").Parse(pageHTML)
	if err != nil {
		return nil, err
	}
	info := d.Root.Map("info")
	view := page{
		Title:    info.Text("title"),
		Summary:  info.Text("summary"),
		BaseURL:  baseURL,
		JSONPath: JSONPath,
		Intro:    prose(info.Text("description")),
		Brand:    b.Name(),
		Logo:     logoPath,
		Style:    template.CSS(style(b)),
		Script:   template.JS(script),
	}
	for line := range strings.Lines(info.Text("description")) {
		if title, isHeading := strings.CutPrefix(strings.TrimSpace(line), "## "); isHeading {
			view.Chapters = append(view.Chapters, chapter{anchor(title), title})
		}
	}
	reader := reader{d, baseURL}
	for _, tag := range d.Root.List("tags") {
		tag, _ := tag.(openapi.Object)
		name := tag.Text("name")
		g := group{Anchor: anchor(name), Title: name, Text: prose(tag.Text("description"))}
		for _, o := range d.Operations() {
			if slices.Contains(o.List("tags"), any(name)) && !isForBrowsersOnly(d, o) {
				g.Operations = append(g.Operations, reader.operation(o))
			}
		}
		if len(g.Operations) > 0 {
			view.Groups = append(view.Groups, g)
		}
	}
	slices.SortStableFunc(view.Groups, func(a, b group) int { return cmp.Compare(rank(a.Title), rank(b.Title)) })
	var out bytes.Buffer
	if err := parsed.Execute(&out, view); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
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
	return template.HTML(scrolling) // from our own text, rendered without raw HTML
}

func anchor(title string) string {
	return strings.ReplaceAll(strings.ToLower(title), " ", "-")
}
