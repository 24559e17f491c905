package apidoc

import (
	"bytes"
	"encoding/json"
	"html/template"
	"slices"
	"strings"

	"github.com/almonerhq/almoner/shared/openapi"
)

// An operation is one method of one path, as shown on the page.
type operation struct {
	Anchor, Method, Path, Title string
	Text                        template.HTML
	Access                      string
	Parameters                  []parameter
	Bodies                      []body
	Samples                     []sample
	Try                         string // path and query of a GET that the page can send; empty for none
	Answers                     []answer
}

// A parameter is in the path, the query or a header.
type parameter struct {
	Name, In, Type, Text string
	Required             bool
}

// A body is a request or response body in one media type.
type body struct {
	Type, Text string
	Fields     []field
	Examples   []example
}

// An example is a sample body.
type example struct{ Name, Text string }

// An answer is a possible response.
type answer struct {
	Status, Text string
	Good         bool
	Headers      []parameter
	Bodies       []body
}

// A reader converts the description to the page's view.
type reader struct {
	document *openapi.Document
	baseURL  string
}

func (r reader) operation(o openapi.Operation) operation {
	out := operation{
		Anchor: o.Text("operationId"),
		Method: o.Method,
		Path:   o.Path,
		Title:  o.Text("summary"),
		Text:   prose(o.Text("description")),
		Access: access(o),
	}
	parameters := r.document.Parameters(o)
	for _, p := range parameters {
		out.Parameters = append(out.Parameters, parameter{
			p.Text("name"),
			p.Text("in"),
			r.typed(p.Map("schema")),
			plain(p.Text("description")),
			p.Value("required") == true,
		})
	}
	sent := r.document.Resolve(o.Map("requestBody"))
	out.Bodies = r.bodies(sent.Map("content"))
	for i := range out.Bodies {
		out.Bodies[i].Text = sent.Text("description")
	}
	sends := r.request(o, parameters, out.Bodies)
	out.Samples = sends.samples()
	if o.Method == "GET" && strings.HasPrefix(o.Path, "/v1/") &&
		(sends.access == byBearer || sends.access == byNothing) {
		out.Try = strings.TrimPrefix(sends.address, r.baseURL)
	}
	for _, response := range o.Map("responses") {
		described, _ := response.Value.(openapi.Object)
		described = r.document.Resolve(described)
		a := answer{Status: response.Name, Text: plain(described.Text("description")), Good: response.Name < "400"}
		for _, header := range described.Map("headers") {
			value, _ := header.Value.(openapi.Object)
			value = r.document.Resolve(value)
			a.Headers = append(a.Headers, parameter{Name: header.Name, Text: plain(value.Text("description"))})
		}
		a.Bodies = r.bodies(described.Map("content"))
		out.Answers = append(out.Answers, a)
	}
	return out
}

func (r reader) bodies(content openapi.Object) []body {
	var out []body
	for _, member := range content {
		media, _ := member.Value.(openapi.Object)
		b := body{Type: member.Name, Fields: r.fields(media.Map("schema"))}
		if last := len(out) - 1; last >= 0 && len(media) == 1 && slices.Equal(out[last].Fields, b.Fields) {
			out[last].Type += " or " + b.Type // another media type for the same schema
			continue
		}
		if len(media.Map("examples")) == 0 {
			if value, has := r.document.Example(media); has {
				b.Examples = []example{{"", format(member.Name, value)}}
			}
		}
		for _, named := range media.Map("examples") {
			value, _ := named.Value.(openapi.Object)
			b.Examples = append(b.Examples, example{named.Name, format(member.Name, value.Value("value"))})
		}
		out = append(out, b)
	}
	return out
}

// format formats an example as sent, with line breaks added for readability.
func format(mediaType string, value any) string {
	if text, isText := value.(string); isText {
		return strings.TrimRight(text, "\n")
	}
	if fields, isForm := value.(openapi.Object); isForm && mediaType == "application/x-www-form-urlencoded" {
		var pairs []string
		for _, f := range fields {
			text, _ := f.Value.(string)
			pairs = append(pairs, f.Name+"="+text)
		}
		return strings.Join(pairs, "\n&")
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if encoder.Encode(value) != nil { // the document was encoded before
		return ""
	}
	return strings.TrimRight(out.String(), "\n")
}

// plain trims text and removes its backticks.
func plain(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "`", "") }
