package apidoc

import (
	"encoding/json"
	gofmt "go/format"
	"strconv"
	"strings"

	"github.com/almonerhq/almoner/shared/web"
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
