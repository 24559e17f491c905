package apidoc

import (
	"encoding/json"
	gofmt "go/format"
	"net/url"
	"strconv"
	"strings"

	"github.com/almonerhq/almoner/shared/contract/openapi"
	"github.com/almonerhq/almoner/shared/net/web"
)

// A sample is a request in one language. assets/page.js replaces the placeholders in its text.
type sample struct{ Language, Text string }

// samples returns the request in each language. Without scripts, the page shows the first one.
func (r request) samples() []sample {
	return []sample{{"curl", r.curl()}, {"Go", r.golang()}, {"JavaScript", r.javaScript()}, {"Python", r.python()}}
}

// curl returns the request as a curl command.
func (r request) curl() string {
	var lines []string
	switch r.access {
	case byBearer:
		lines = append(lines, `-H "Authorization: Bearer $TOKEN"`)
	case byService:
		lines = append(lines, `-u "$CLIENT_ID:$CLIENT_SECRET"`)
	}
	for _, h := range r.headers {
		if h.name == tenantHeader {
			lines = append(lines, `-H "X-Tenant-Id: $WORKSPACE"`)
			continue
		}
		lines = append(lines, quoted("-H", h.name+": "+h.value))
	}
	for _, f := range r.form {
		lines = append(lines, quoted("--data-urlencode", f.name+"="+f.value))
	}
	if r.body != "" {
		lines = append(lines, quoted("-H", "Content-Type: "+r.kind), quoted("--data-binary", r.body))
	}
	address := r.address
	if strings.Contains(address, "?") {
		address = "'" + address + "'"
	}
	if r.method != "GET" && (r.method != "POST" || !r.hasBody()) {
		address = "-X " + r.method + " " + address
	}
	return strings.Join(append([]string{"curl " + address}, lines...), " \\\n  ")
}

func quoted(option, text string) string {
	return option + " '" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// golang returns the request as statements of Go.
func (r request) golang() string {
	var out strings.Builder
	body := "nil"
	switch {
	case len(r.form) > 0:
		out.WriteString("form := url.Values{\n")
		for _, f := range r.form {
			out.WriteString("\t" + strconv.Quote(f.name) + ": {" + strconv.Quote(f.value) + "},\n")
		}
		out.WriteString("}\n")
		body = "strings.NewReader(form.Encode())"
	case r.body != "":
		text := "`" + r.body + "`"
		if strings.Contains(r.body, "`") {
			text = strconv.Quote(r.body)
		}
		out.WriteString("body := strings.NewReader(" + text + ")\n")
		body = "body"
	}
	out.WriteString("request, err := http.NewRequest(" + strconv.Quote(r.method) + ", " + strconv.Quote(r.address) +
		", " + body + ")\nif err != nil {\n\treturn err\n}\n")
	set := func(name, value string) {
		out.WriteString("request.Header.Set(" + strconv.Quote(name) + ", " + value + ")\n")
	}
	switch r.access {
	case byBearer:
		set("Authorization", `"Bearer "+os.Getenv("TOKEN")`)
	case byService:
		out.WriteString(`request.SetBasicAuth(os.Getenv("CLIENT_ID"), os.Getenv("CLIENT_SECRET"))` + "\n")
	}
	for _, h := range r.headers {
		value := strconv.Quote(h.value)
		if h.name == tenantHeader {
			value = `os.Getenv("WORKSPACE")`
		}
		set(h.name, value)
	}
	switch {
	case len(r.form) > 0:
		set("Content-Type", `"application/x-www-form-urlencoded"`)
	case r.body != "":
		set("Content-Type", strconv.Quote(r.kind))
	}
	out.WriteString("response, err := http.DefaultClient.Do(request)\nif err != nil {\n\treturn err\n}\n" +
		"defer response.Body.Close()")
	formatted, err := gofmt.Source([]byte(out.String()))
	if err != nil { // a test formats every example
		return out.String()
	}
	return string(formatted)
}

// javaScript returns the request for Node.js.
func (r request) javaScript() string {
	var headers []string
	add := func(name, value string) { headers = append(headers, "    "+literal(name)+": "+value) }
	switch r.access {
	case byBearer:
		add("Authorization", `"Bearer " + process.env.TOKEN`)
	case byService:
		add("Authorization", `"Basic " + btoa(process.env.CLIENT_ID + ":" + process.env.CLIENT_SECRET)`)
	}
	for _, h := range r.headers {
		value := literal(h.value)
		if h.name == tenantHeader {
			value = "process.env.WORKSPACE"
		}
		add(h.name, value)
	}
	var options []string
	if r.method != "GET" {
		options = append(options, "  method: "+literal(r.method))
	}
	if r.body != "" {
		add("Content-Type", literal(r.kind))
	}
	if len(headers) > 0 {
		options = append(options, "  headers: {\n"+strings.Join(headers, ",\n")+",\n  }")
	}
	switch {
	case len(r.form) > 0:
		var fields []string
		for _, f := range r.form {
			fields = append(fields, "    "+literal(f.name)+": "+literal(f.value))
		}
		options = append(options, "  body: new URLSearchParams({\n"+strings.Join(fields, ",\n")+",\n  })")
	case r.isObject():
		options = append(options, "  body: JSON.stringify("+indented(r.body, "  ")+")")
	case r.body != "":
		options = append(options, "  body: "+literal(r.body))
	}
	call := "fetch(" + literal(r.address)
	if len(options) > 0 {
		call += ", {\n" + strings.Join(options, ",\n") + ",\n}"
	}
	return "const response = await " + call + ");\nconsole.log(response.status, await response.text());"
}

// python returns the request for Python's requests.
func (r request) python() string {
	arguments := []string{literal(r.address)}
	var headers []string
	add := func(name, value string) { headers = append(headers, "        "+literal(name)+": "+value) }
	switch r.access {
	case byBearer:
		add("Authorization", `"Bearer " + os.environ["TOKEN"]`)
	case byService:
		arguments = append(arguments, `auth=(os.environ["CLIENT_ID"], os.environ["CLIENT_SECRET"])`)
	}
	for _, h := range r.headers {
		value := literal(h.value)
		if h.name == tenantHeader {
			value = `os.environ["WORKSPACE"]`
		}
		add(h.name, value)
	}
	if r.body != "" {
		add("Content-Type", literal(r.kind))
	}
	if len(headers) > 0 {
		arguments = append(arguments, "headers={\n"+strings.Join(headers, ",\n")+",\n    }")
	}
	switch {
	case len(r.form) > 0:
		var fields []string
		for _, f := range r.form {
			fields = append(fields, "        "+literal(f.name)+": "+literal(f.value))
		}
		arguments = append(arguments, "data={\n"+strings.Join(fields, ",\n")+",\n    }")
	case r.body != "":
		arguments = append(arguments, "data="+pythonText(r.body)+".encode()")
	}
	imports := "import requests\n\n"
	call := "requests." + strings.ToLower(r.method) + "(\n    " + strings.Join(arguments, ",\n    ") + ",\n)"
	if strings.Contains(call, "os.environ") {
		imports = "import os\nimport requests\n\n"
	}
	return imports + "response = " + call + "\nprint(response.status_code, response.text)"
}

// pythonText returns a string literal, on several lines if that is easier to read.
func pythonText(text string) string {
	if strings.ContainsAny(text, `\'`) {
		return literal(text)
	}
	return "'''" + text + "'''"
}

// isObject reports whether the body is JSON.
func (r request) isObject() bool {
	return strings.HasSuffix(r.kind, "json") && json.Valid([]byte(r.body))
}

// indented indents all lines except the first.
func indented(text, by string) string { return strings.ReplaceAll(text, "\n", "\n"+by) }

// literal returns a string literal that is valid in JSON, JavaScript and Python.
func literal(text string) string {
	encoded, err := web.EncodeJSON(text)
	if err != nil { // not possible for a string
		return `""`
	}
	return strings.TrimSpace(string(encoded))
}

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
