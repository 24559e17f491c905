package harness

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/almonerhq/almoner/shared/contract/openapi"
)

// An exchange is a request and its response, with their bodies.
type exchange struct {
	request  *http.Request
	response *http.Response

	sent, answer []byte
}

// Checker returns the checker of this process, with the responses that all tests have received.
var Checker = sync.OnceValues(newDescriptionChecker)

// A DescriptionChecker checks exchanges against the OpenAPI description (shared/contract/openapi): that the status is
// described, that headers and body match their schemas, and that the description allows a request that succeeded. It
// records which responses have occurred, so that the missing ones can be listed at the end of a run. It is safe for
// concurrent use.
//
// Schemas are validated with santhosh-tekuri/jsonschema, which supports JSON Schema 2020-12 as OpenAPI 3.1 uses it. The
// two Go libraries that validate whole exchanges quote values, and so secrets, in their errors. libopenapi-validator
// 0.16.3 accepts null as any JSON body, and every body where none is described; kin-openapi does not check 304, HEAD
// and bodies that are not described, and compiles each schema again for each response. With either library, this type
// would still have to check paths and methods that are not described, HEAD and the parameter fields, and to record the
// responses that have occurred.
type DescriptionChecker struct {
	Document *openapi.Document

	mu       sync.Mutex
	seen     map[string]bool // responses, by name
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema // each schema once, by its JSON
}

// descriptionURL is the base URL of the document and its schemas in the compiler. Nothing is fetched.
const descriptionURL = "https://described.invalid/"

// newDescriptionChecker returns a checker. The deployment's URL does not matter.
func newDescriptionChecker() (*DescriptionChecker, error) {
	document, err := openapi.New("https://api.example.org")
	if err != nil {
		return nil, err
	}
	decoded, err := decode(document.JSON())
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	if err := compiler.AddResource(descriptionURL+"openapi.json", decoded); err != nil {
		return nil, err
	}
	compiled := map[string]*jsonschema.Schema{}
	return &DescriptionChecker{Document: document, seen: map[string]bool{}, compiler: compiler, compiled: compiled}, nil
}

// responseName returns the key of a described response.
func responseName(o openapi.Operation, status string) string {
	return o.Method + " " + o.Path + " " + status
}

// check returns the differences between the exchange and the description. They contain no value of the exchange.
func (d *DescriptionChecker) check(x exchange) []string {
	method := x.request.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	there := d.Document.At(x.request.URL.EscapedPath())
	operation, found := d.Document.Find(method, x.request.URL.EscapedPath())
	switch {
	case !found && x.response.StatusCode == http.StatusServiceUnavailable: // the gateway cannot reach the service
		return nil
	case len(there) == 0 && x.response.StatusCode == http.StatusNotFound:
		return d.checkResponse(x, d.Document.Lookup("#/components/responses/NoSuchPath"))
	case len(there) == 0:
		return []string{"a path that is not described exists"}
	case !found:
		return d.checkWrongMethod(x, there)
	}
	status := strconv.Itoa(x.response.StatusCode)
	response, _ := operation.Map("responses").Value(status).(openapi.Object)
	if response == nil {
		return []string{status + " is not described"}
	}
	problems := d.checkResponse(x, d.Document.Resolve(response))
	if x.response.StatusCode < 300 {
		problems = append(problems, d.checkRequest(x, operation)...)
	}
	if len(problems) == 0 {
		d.mu.Lock()
		d.seen[responseName(operation, status)] = true
		d.mu.Unlock()
	}
	return problems
}

// checkWrongMethod checks a method that is not described: 405 with the described methods in Allow. Preflight requests
// for public documents have the same response everywhere (CORS).
func (d *DescriptionChecker) checkWrongMethod(x exchange, there []openapi.Operation) []string {
	if x.request.Method == http.MethodOptions && x.request.Header.Get("Access-Control-Request-Method") != "" &&
		x.response.StatusCode == http.StatusNoContent {
		return nil
	}
	if x.response.StatusCode != http.StatusMethodNotAllowed {
		return []string{"a method that is not described is not rejected with 405"}
	}
	var want []string
	for _, o := range there {
		want = append(want, o.Method)
		if o.Method == http.MethodGet {
			want = append(want, http.MethodHead)
		}
	}
	slices.Sort(want)
	problems := d.checkResponse(x, d.Document.Lookup("#/components/responses/WrongMethod"))
	if got := x.response.Header.Get("Allow"); got != strings.Join(want, ", ") {
		problems = append(problems, fmt.Sprintf("Allow is %q, want the described methods %v", got, want))
	}
	return problems
}

func (d *DescriptionChecker) checkResponse(x exchange, response openapi.Object) []string {
	var problems []string
	for _, member := range response.Map("headers") {
		header, _ := member.Value.(openapi.Object)
		header = d.Document.Resolve(header)
		values := x.response.Header.Values(member.Name)
		switch {
		case len(values) == 0 && header.Value("required") == true:
			problems = append(problems, "header "+member.Name+" is missing")
		case len(values) > 0:
			text := strings.Join(values, ", ")
			problems = append(problems, d.checkText("header "+member.Name, header.Map("schema"), text)...)
		}
	}
	content := response.Map("content")
	switch {
	case x.request.Method == http.MethodHead:
		return problems
	case len(content) == 0 && len(x.answer) > 0:
		return append(problems, "a body that is not described")
	case len(content) == 0:
		return problems
	}
	found := d.checkBody("body", content, x.response.Header.Get("Content-Type"), x.answer)
	if x.request.URL.Query().Has("fields") {
		found = slices.DeleteFunc(found, missesMember.MatchString)
	}
	return append(problems, found...)
}

// missesMember matches that an item of a list has no member that its schema requires. The parameter fields names the
// members that items have.
var missesMember = regexp.MustCompile(`^body, at /data/\d+: required `)

// Missing returns the described responses that have not occurred.
func (d *DescriptionChecker) Missing() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for _, o := range d.Document.Operations() {
		for _, response := range o.Map("responses") {
			if answer := responseName(o, response.Name); !d.seen[answer] {
				out = append(out, answer)
			}
		}
	}
	return out
}

func decode(content []byte) (any, error) {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(content))
	if err == nil && !json.Valid(content) {
		return nil, fmt.Errorf("more than one JSON value")
	}
	return value, err
}

// checkRequest checks that the description allows a request that succeeded. It ignores what the description does not
// name, as the product does.
func (d *DescriptionChecker) checkRequest(x exchange, o openapi.Operation) []string {
	var problems []string
	for _, p := range d.Document.Parameters(o) {
		var values []string
		switch p.Text("in") {
		case "query":
			values = x.request.URL.Query()[p.Text("name")]
		case "header":
			values = x.request.Header.Values(p.Text("name"))
		default: // path: already matched
			continue
		}
		what := p.Text("in") + " parameter " + p.Text("name")
		switch {
		case len(values) > 0:
			problems = append(problems, d.checkText(what, p.Map("schema"), values[0])...)
		case p.Value("required") == true:
			problems = append(problems, what+" is described as required, but the request succeeded without it")
		}
	}
	if authorization := x.request.Header.Get("Authorization"); authorization == "" && needsCredential(o) {
		problems = append(problems, "a credential is described as required, but the request succeeded without it")
	}
	body := d.Document.Resolve(o.Map("requestBody"))
	switch {
	case len(x.sent) > 0 && body != nil:
		contentType := x.request.Header.Get("Content-Type")
		problems = append(problems, d.checkBody("body of the request", body.Map("content"), contentType, x.sent)...)
	case len(x.sent) == 0 && body.Value("required") == true:
		problems = append(problems, "a body is described as required, but the request succeeded without it")
	}
	return problems
}

// needsCredential reports whether every way of calling the operation needs a credential.
func needsCredential(o openapi.Operation) bool {
	for _, one := range o.List("security") {
		if scheme, _ := one.(openapi.Object); len(scheme) == 0 {
			return false
		}
	}
	return len(o.List("security")) > 0
}

func (d *DescriptionChecker) checkBody(what string, content openapi.Object, contentType string, body []byte) []string {
	mediaType, _, err := mime.ParseMediaType(contentType)
	media, _ := content.Value(mediaType).(openapi.Object)
	if err != nil || media == nil {
		return []string{"the media type of the " + what + " is not described"}
	}
	schema := media.Map("schema")
	if schema == nil {
		return nil
	}
	var value any = string(body)
	switch {
	case strings.HasSuffix(mediaType, "json"):
		if value, err = decode(body); err != nil {
			return []string{what + " is not JSON"}
		}
	case mediaType == "application/x-www-form-urlencoded":
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return []string{what + " is not a form"}
		}
		fields := map[string]any{}
		for field, values := range form {
			fields[field] = values[0]
		}
		value = fields
	}
	return d.validate(what, schema, value)
}

func (d *DescriptionChecker) compile(schema openapi.Object) (*jsonschema.Schema, error) {
	text, err := json.Marshal(schema)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.compiled[string(text)]; known != nil {
		return known, nil
	}
	// References in the schema must point to the document.
	absolute := strings.ReplaceAll(string(text), `"$ref":"#/`, `"$ref":"`+descriptionURL+`openapi.json#/`)
	value, err := decode([]byte(absolute))
	if err != nil {
		return nil, err
	}
	at := descriptionURL + strconv.Itoa(len(d.compiled))
	if err := d.compiler.AddResource(at, value); err != nil {
		return nil, err
	}
	compiled, err := d.compiler.Compile(at)
	if err != nil {
		return nil, err
	}
	d.compiled[string(text)] = compiled
	return compiled, nil
}

// validate returns where the value does not match the schema, with the keyword. It returns no value, which may be a
// secret.
func (d *DescriptionChecker) validate(what string, schema openapi.Object, value any) []string {
	compiled, err := d.compile(schema)
	if err != nil {
		return []string{fmt.Sprintf("the schema of the %s cannot be used: %v", what, err)}
	}
	if invalid, is := errors.AsType[*jsonschema.ValidationError](compiled.Validate(value)); is {
		return leaves(what, invalid)
	}
	return nil
}

func leaves(what string, e *jsonschema.ValidationError) []string {
	if len(e.Causes) == 0 {
		at, keyword := strings.Join(e.InstanceLocation, "/"), strings.Join(e.ErrorKind.KeywordPath(), "/")
		schema := strings.TrimPrefix(e.SchemaURL, descriptionURL)
		return []string{fmt.Sprintf("%s, at /%s: %s (%s)", what, at, keyword, schema)}
	}
	var out []string
	for _, cause := range e.Causes {
		out = append(out, leaves(what, cause)...)
	}
	return out
}

// checkText checks a value in text form: of a header or a parameter.
func (d *DescriptionChecker) checkText(what string, schema openapi.Object, text string) []string {
	var value any = text
	if d.Document.Resolve(schema).Text("type") == "integer" {
		number, err := strconv.ParseInt(text, 10, 64)
		if err != nil && !strings.ContainsAny(text, "0123456789") {
			return []string{what + " is not a number"}
		}
		value = json.Number(strconv.FormatInt(number, 10))
	}
	return d.validate(what, schema, value)
}
