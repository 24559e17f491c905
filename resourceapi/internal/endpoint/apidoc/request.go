package apidoc

import (
	"bytes"
	_ "embed"
	"encoding/json"
	gofmt "go/format"
	"net/url"
	"strconv"
	"strings"
	"text/template"

	"github.com/almonerhq/almoner/shared/contract/openapi"
	"github.com/almonerhq/almoner/shared/net/web"
)

//go:embed assets/samples.tmpl
var samplesText string

var samplesTemplate = template.Must(template.New("samples").Funcs(template.FuncMap{
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
