package apidoc

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	gofmt "go/format"
	"html/template"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	texttemplate "text/template"

	"github.com/almonerhq/almoner/shared/contract/openapi"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/net/web"
)

// An operation is one method of one path, as shown on the page.
type operation struct {
	Anchor, Method, Path, Title string
	Text                        template.HTML
	Access                      string
	Needs                       perm.Set // permissions, all of them
	Tools                       []field  // of the MCP endpoint, with the permissions that each needs
	Parameters                  []field
	Headers                     []field // that can be omitted
	Bodies                      []body
	Samples                     []sample
	Try                         string // path and query of a GET that the page can send; empty for none
	Answers                     []answer
	Refusals                    []answer // with their status and text alone: the introduction describes their bodies
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
	Headers      []field
	Bodies       []body
}

// A reader converts the description to the page's view.
type reader struct {
	document *openapi.Document
	baseURL  string
}

// required is a sentence of a description that names permissions alone. The page has them in a line of their own.
var required = regexp.MustCompile("\\s*\\bRequires\\s+`[a-z:]+`(?:\\s+and\\s+`[a-z:]+`)*\\.")

func (r reader) operation(o openapi.Operation) operation {
	out := operation{
		Anchor: o.Text("operationId"),
		Method: o.Method,
		Path:   o.Path,
		Title:  o.Text("summary"),
		Text:   prose(required.ReplaceAllString(o.Text("description"), "")),
		Access: access(o),
	}
	out.Needs, _ = o.Permissions()
	tools := o.Tools()
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		needs := cmp.Or(strings.Join(tools[name].Strings(), ", "), "no permission")
		out.Tools = append(out.Tools, field{Name: name, Type: "Needs: " + needs})
	}
	parameters := r.document.Parameters(o)
	for _, p := range parameters {
		f := field{
			Name:     p.Text("name"),
			Type:     p.Text("in") + " · " + r.typed(p.Map("schema")),
			Text:     plain(p.Text("description")),
			Required: p.Value("required") == true,
		}
		if p.Text("in") == "header" && !f.Required {
			out.Headers = append(out.Headers, f)
		} else {
			out.Parameters = append(out.Parameters, f)
		}
	}
	sent := r.document.Resolve(o.Map("requestBody"))
	out.Bodies = r.bodies(sent.Map("content"))
	for i := range out.Bodies {
		out.Bodies[i].Text = strings.TrimSuffix(plain(sent.Text("description")), ".")
	}
	sends := r.request(o, parameters, out.Bodies)
	out.Samples = sends.samples()
	if o.Method == "GET" && strings.HasPrefix(o.Path, "/v1/") &&
		(out.Access == byBearer || out.Access == byNothing) {
		out.Try = strings.TrimPrefix(sends.Address, r.baseURL)
	}
	for _, response := range o.Map("responses") {
		described := r.document.Resolve(response.Object())
		a := answer{Status: response.Name, Text: plain(described.Text("description"))}
		if a.Status >= "400" {
			out.Refusals = append(out.Refusals, a)
			continue
		}
		for _, header := range described.Map("headers") {
			text := plain(r.document.Resolve(header.Object()).Text("description"))
			a.Headers = append(a.Headers, field{Name: header.Name, Type: "header", Text: text})
		}
		a.Bodies = r.bodies(described.Map("content"))
		out.Answers = append(out.Answers, a)
	}
	return out
}

func (r reader) bodies(content openapi.Object) []body {
	var out []body
	for _, member := range content {
		media := member.Object()
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
			b.Examples = append(b.Examples, example{named.Name, format(member.Name, named.Object().Value("value"))})
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
	encoder := web.NewEncoder(&out)
	encoder.SetIndent("", "  ")
	if encoder.Encode(value) != nil { // the document was encoded before
		return ""
	}
	return strings.TrimRight(out.String(), "\n")
}

// plain trims text and removes its backticks.
func plain(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "`", "") }

// A field is a parameter, a header, or a member of a body, whose Name is its path: meta.count, data[].id.
type field struct {
	Name, Type, Text string
	Required         bool
}

// deepest is the maximum depth of listed fields.
const deepest = 4

// fields lists the members of a schema.
func (r reader) fields(schema openapi.Object) []field {
	var out []field
	r.list(schema, "", deepest, &out)
	return out
}

func (r reader) list(schema openapi.Object, under string, depth int, out *[]field) {
	schema = r.resolve(schema)
	if depth == 0 || schema == nil {
		return
	}
	if items := schema.Map("items"); items != nil {
		r.list(items, under+"[]", depth, out)
		return
	}
	required := schema.List("required")
	prefix := under
	if prefix != "" {
		prefix += "."
	}
	for _, member := range schema.Map("properties") {
		described, isSchema := member.Value.(openapi.Object)
		if !isSchema { // false: the member is forbidden
			continue
		}
		child := r.resolve(described)
		*out = append(*out, field{
			prefix + member.Name,
			r.typed(described),
			plain(child.Text("description")),
			slices.Contains(required, any(member.Name)),
		})
		r.list(child, prefix+member.Name, depth-1, out)
	}
	for _, either := range schema.List("oneOf") {
		either, _ := either.(openapi.Object)
		r.list(either, under, depth-1, out)
	}
}

// resolve resolves the $ref and allOf of a schema. If both define a member, the outer definition extends the inner one.
func (r reader) resolve(schema openapi.Object) openapi.Object {
	inner := openapi.Object{}
	if reference := schema.Text("$ref"); reference != "" {
		inner = r.resolve(r.document.Lookup(reference))
	}
	for _, one := range schema.List("allOf") {
		one, _ := one.(openapi.Object)
		inner = merge(inner, r.resolve(one))
	}
	return merge(inner, schema)
}

func merge(inner, outer openapi.Object) openapi.Object {
	out := slices.Clone(inner)
	for _, member := range outer {
		at := slices.IndexFunc(out, func(m openapi.Member) bool { return m.Name == member.Name })
		switch {
		case member.Name == "$ref" || member.Name == "allOf":
		case at < 0:
			out = append(out, member)
		default:
			within, isObject := out[at].Value.(openapi.Object)
			further, alsoObject := member.Value.(openapi.Object)
			if isObject && alsoObject {
				member.Value = merge(within, further)
			}
			out[at] = member
		}
	}
	return out
}

// typed describes the type of a value with its limits and its default.
func (r reader) typed(schema openapi.Object) string {
	text, schema := r.kind(schema), r.resolve(schema)
	for _, limit := range []struct{ name, format string }{
		{"maxLength", ", up to %v characters"},
		{"maxItems", ", up to %v items"},
		{"default", ", default %v"},
	} {
		if value := schema.Value(limit.name); value != nil {
			text += fmt.Sprintf(limit.format, value)
		}
	}
	return text
}

// kind describes the type of a value in a few words.
func (r reader) kind(schema openapi.Object) string {
	schema = r.resolve(schema)
	var choices []string
	for _, one := range schema.List("enum") {
		choices = append(choices, fmt.Sprint(one))
	}
	for _, one := range schema.List("oneOf") {
		one, _ := one.(openapi.Object)
		if kind := r.kind(one); !slices.Contains(choices, kind) {
			choices = append(choices, kind)
		}
	}
	switch {
	case len(choices) > 0:
		return strings.Join(choices, " | ")
	case schema.Value("const") != nil:
		return fmt.Sprint(schema.Value("const"))
	case schema.Map("items") != nil:
		return "array of " + r.kind(schema.Map("items"))
	}
	named := map[string]string{"uuid": "UUID", "uri": "URL", "date-time": "time", "date": "date"}
	return cmp.Or(named[schema.Text("format")], schema.Text("type"))
}

//go:embed assets/samples.tmpl
var samplesText string

var samplesTemplate = texttemplate.Must(texttemplate.New("samples").Funcs(texttemplate.FuncMap{
	"shell": func(parts ...string) string {
		return "'" + strings.ReplaceAll(strings.Join(parts, ""), "'", `'\''`) + "'"
	},
	"has":      strings.ContainsAny,
	"quote":    strconv.Quote,
	"literal":  literal,
	"lower":    strings.ToLower,
	"indented": func(text string) string { return strings.ReplaceAll(text, "\n", "\n  ") }, // not the first line
}).Parse(samplesText))

// A sample is a request in one language. assets/page.js replaces the placeholders in its text.
type sample struct{ Language, Text string }

// samples returns the request in each language. Without scripts, the page shows the first one.
func (r request) samples() []sample {
	var all []sample
	for _, language := range []string{"curl", "Go", "JavaScript", "Python"} {
		var text bytes.Buffer
		if err := samplesTemplate.ExecuteTemplate(&text, language, r); err != nil {
			panic(err) // only for a template that does not fit a request
		}
		content := text.Bytes()
		if formatted, err := gofmt.Source(content); err == nil && language == "Go" {
			content = formatted
		}
		all = append(all, sample{language, string(content)})
	}
	return all
}

// literal returns a string literal that is valid in JSON, JavaScript and Python.
func literal(text string) (string, error) {
	encoded, err := web.EncodeJSON(text)
	return string(encoded), err
}

// A request is an example request. The page shows it in several languages.
type request struct {
	Method  string
	Address string // absolute, with the query
	Headers []pair
	Body    string
	Form    []pair // fields of a form, instead of Body
	Type    string // content type of Body or Form, empty without either

	WithToken     bool // a bearer token
	WithSecret    bool // the credentials of a service
	WithWorkspace bool // the header that names the workspace
}

// A pair is a name with its value.
type pair struct{ Name, Value string }

// IsWorkspace reports whether the pair is the header that names the workspace. Each client has its own value.
func (p pair) IsWorkspace() bool { return p.Name == "X-Tenant-Id" }

const (
	byBearer  = "Bearer token"
	byService = "Service credentials"
	byClient  = "Application credentials"
	byNothing = "Public"
)

// access describes who may call the operation.
func access(o openapi.Operation) string {
	for _, one := range o.List("security") {
		for _, scheme := range one.(openapi.Object) {
			switch scheme.Name {
			case "bearer", "assistant":
				return byBearer
			case "service":
				return byService
			case "clientBasic":
				return byClient
			}
		}
	}
	return byNothing
}

// IsJSON reports whether the body is JSON.
func (r request) IsJSON() bool {
	return strings.HasSuffix(r.Type, "json") && json.Valid([]byte(r.Body))
}

// request returns the example request of an operation, with the first of its bodies.
func (r reader) request(o openapi.Operation, parameters []openapi.Object, bodies []body) request {
	out := request{Method: o.Method, WithToken: access(o) == byBearer, WithSecret: access(o) == byService}
	path, query := o.Path, url.Values{}
	for _, p := range parameters {
		header := pair{Name: p.Text("name")}
		value, has := r.document.Example(p)
		header.Value, _ = value.(string)
		switch {
		case header.IsWorkspace():
			out.Headers, out.WithWorkspace = append(out.Headers, header), true
		case !has || header.Value == "":
		case header.Name == "If-None-Match": // With If-Match too, the example of a write would always be refused.
		// An example of a read omits optional parameters, so that it returns everything.
		case p.Value("required") != true && (o.Method == "GET" || p.Text("in") == "query"):
		case p.Text("in") == "path":
			path = strings.ReplaceAll(path, "{"+header.Name+"}", header.Value)
		case p.Text("in") == "query":
			query.Set(header.Name, header.Value)
		default:
			out.Headers = append(out.Headers, header)
		}
	}
	out.Address = r.baseURL + path
	if len(query) > 0 {
		out.Address += "?" + query.Encode()
	}
	if len(bodies) == 0 || len(bodies[0].Examples) == 0 {
		return out
	}
	text := bodies[0].Examples[0].Text
	out.Type, _, _ = strings.Cut(bodies[0].Type, " or ")
	if out.Type != "application/x-www-form-urlencoded" {
		out.Body = text
		return out
	}
	for field := range strings.SplitSeq(text, "\n&") {
		name, value, _ := strings.Cut(field, "=")
		out.Form = append(out.Form, pair{name, value})
	}
	return out
}
