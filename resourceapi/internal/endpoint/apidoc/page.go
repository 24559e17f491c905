package apidoc

import (
	"bytes"
	_ "embed"
	"html/template"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"

	"github.com/almonerhq/almoner/shared/openapi"
)

//go:embed assets/page.html
var pageHTML string

//go:embed assets/page.css
var style string

// A page is the data of the template.
type page struct {
	Title, Summary string
	BaseURL        string
	JSONPath       string
	Intro          template.HTML
	Chapters       []chapter // of the introduction
	Groups         []group
	Style          template.CSS
}

// A chapter is a heading of the introduction.
type chapter struct{ Anchor, Title string }

// A group is the operations of one tag.
type group struct {
	Anchor, Title string
	Text          template.HTML
	Operations    []operation
}

func render(d *openapi.Document, baseURL string) ([]byte, error) {
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
		Style:    template.CSS(style),
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
			if slices.Contains(o.List("tags"), any(name)) {
				g.Operations = append(g.Operations, reader.operation(o))
			}
		}
		view.Groups = append(view.Groups, g)
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, view); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// prose converts the Markdown of a description to HTML. Raw HTML in it is dropped.
func prose(text string) template.HTML {
	markdown := goldmark.New(
		goldmark.WithExtensions(extension.Table),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()),
	)
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
