package apidoc

import (
	"net/url"
	"strings"

	"github.com/almonerhq/almoner/shared/openapi"
)

// A request is an example request. The page shows it in several languages.
type request struct {
	method  string
	address string // absolute, with the query
	access  string
	headers []pair
	body    string // in the content type kind; empty if there is none
	kind    string // content type
	form    []pair // fields of a form, instead of body
}

// A pair is a name with its value.
type pair struct{ name, value string }

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

const tenantHeader = "X-Tenant-Id"

// request returns the example request of an operation, with the first of its bodies.
func (r reader) request(o openapi.Operation, parameters []openapi.Object, bodies []body) request {
	out := request{method: o.Method, access: access(o)}
	path, query := o.Path, url.Values{}
	for _, p := range parameters {
		name := p.Text("name")
		value, has := r.document.Example(p)
		text, _ := value.(string)
		switch {
		case name == tenantHeader:
			out.headers = append(out.headers, pair{name: name}) // each client has its own value
		case !has || text == "":
		// An example of a read omits optional parameters, so that it returns everything.
		case p.Value("required") != true && (o.Method == "GET" || p.Text("in") == "query"):
		case p.Text("in") == "path":
			path = strings.ReplaceAll(path, "{"+name+"}", text)
		case p.Text("in") == "query":
			query.Set(name, text)
		default:
			out.headers = append(out.headers, pair{name, text})
		}
	}
	out.address = r.baseURL + path
	if len(query) > 0 {
		out.address += "?" + query.Encode()
	}
	if len(bodies) == 0 || len(bodies[0].Examples) == 0 {
		return out
	}
	text := bodies[0].Examples[0].Text
	if bodies[0].Type == "application/x-www-form-urlencoded" {
		for field := range strings.SplitSeq(text, "\n&") {
			name, value, _ := strings.Cut(field, "=")
			out.form = append(out.form, pair{name, value})
		}
		return out
	}
	out.kind, _, _ = strings.Cut(bodies[0].Type, " or ")
	out.body = text
	return out
}

// hasBody reports whether the request sends anything.
func (r request) hasBody() bool { return r.body != "" || len(r.form) > 0 }
