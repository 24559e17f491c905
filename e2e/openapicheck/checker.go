// Package openapicheck checks that the product's responses match its OpenAPI description.
//
// A Checker contains the description of the API (shared/contract/openapi). It checks that the status of an exchange is
// described, that headers and body match their schemas, and that the description allows a request that succeeded. It
// records which responses have occurred, so that the missing ones can be listed at the end of a run.
//
// Schemas are validated with santhosh-tekuri/jsonschema, which supports JSON Schema 2020-12 as OpenAPI 3.1 uses it. The
// two Go libraries that validate whole exchanges were tried first: libopenapi-validator needs forks of modules that are
// not always available; kin-openapi does not check 304, HEAD and bodies that are not described, compiles each schema
// again for each response, and includes values, and so secrets, in its errors.
package openapicheck

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

// An Exchange is a request and its response.
type Exchange struct {
	Method, Path string // Path is escaped, as it was sent
	Query        url.Values
	Header       http.Header
	Body         []byte

	Status       int
	AnswerHeader http.Header
	Answer       []byte
}

// A Checker checks exchanges against the OpenAPI description. It is safe for concurrent use.
type Checker struct {
	Document *openapi.Document

	schemas *schemas
	mu      sync.Mutex
	seen    map[string]bool // responses, by name
}

// New returns a Checker. The deployment's URL does not matter.
func New() (*Checker, error) {
	document, err := openapi.New("https://api.example.org")
	if err != nil {
		return nil, err
	}
	s, err := newSchemas(document)
	if err != nil {
		return nil, err
	}
	return &Checker{Document: document, schemas: s, seen: map[string]bool{}}, nil
}

// name returns the key of a described response.
func name(o openapi.Operation, status string) string { return o.Method + " " + o.Path + " " + status }

// Check returns the differences between the exchange and the description. They contain no value of the exchange.
func (c *Checker) Check(x Exchange) []string {
	method := x.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	there := c.Document.At(x.Path)
	operation, found := c.Document.Find(method, x.Path)
	switch {
	case len(there) == 0:
		return c.checkUnknownPath(x)
	case !found:
		return c.checkWrongMethod(x, there)
	}
	status := strconv.Itoa(x.Status)
	response, _ := operation.Map("responses").Value(status).(openapi.Object)
	if response == nil {
		return []string{status + " is not described"}
	}
	problems := c.checkResponse(x, c.Document.Resolve(response))
	if x.Status < 300 {
		problems = append(problems, c.checkRequest(x, operation)...)
	}
	if len(problems) == 0 {
		c.mu.Lock()
		c.seen[name(operation, status)] = true
		c.mu.Unlock()
	}
	return problems
}

// checkUnknownPath checks a path that is not described: 404, or 503 if the gateway cannot reach the service.
func (c *Checker) checkUnknownPath(x Exchange) []string {
	switch x.Status {
	case http.StatusNotFound:
		return c.checkResponse(x, c.component("NoSuchPath"))
	case http.StatusServiceUnavailable:
		return nil
	}
	return []string{"a path that is not described exists"}
}

// checkWrongMethod checks a method that is not described: 405 with the described methods in Allow. Preflight requests
// for public documents have the same response everywhere (CORS).
func (c *Checker) checkWrongMethod(x Exchange, there []openapi.Operation) []string {
	if x.Method == http.MethodOptions && x.Header.Get("Access-Control-Request-Method") != "" &&
		x.Status == http.StatusNoContent {
		return nil
	}
	if x.Status == http.StatusServiceUnavailable { // the service is unavailable
		return nil
	}
	if x.Status != http.StatusMethodNotAllowed {
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
	problems := c.checkResponse(x, c.component("WrongMethod"))
	if got := x.AnswerHeader.Get("Allow"); got != strings.Join(want, ", ") {
		problems = append(problems, fmt.Sprintf("Allow is %q, want the described methods %v", got, want))
	}
	return problems
}

func (c *Checker) component(response string) openapi.Object {
	return c.Document.Lookup("#/components/responses/" + response)
}

func (c *Checker) checkResponse(x Exchange, response openapi.Object) []string {
	var problems []string
	for _, member := range response.Map("headers") {
		header, _ := member.Value.(openapi.Object)
		header = c.Document.Resolve(header)
		values := x.AnswerHeader.Values(member.Name)
		switch {
		case len(values) == 0 && header.Value("required") == true:
			problems = append(problems, "header "+member.Name+" is missing")
		case len(values) > 0:
			text := strings.Join(values, ", ")
			problems = append(problems, c.checkText("header "+member.Name, header.Map("schema"), text)...)
		}
	}
	content := response.Map("content")
	switch {
	case x.Method == http.MethodHead:
		return problems
	case len(content) == 0 && len(x.Answer) > 0:
		return append(problems, "a body that is not described")
	case len(content) == 0:
		return problems
	}
	found := c.checkBody("body", content, x.AnswerHeader.Get("Content-Type"), x.Answer)
	if x.Query.Has("fields") {
		found = slices.DeleteFunc(found, missesMember.MatchString)
	}
	return append(problems, found...)
}

// missesMember matches that an item of a list has no member that its schema requires. The parameter fields names the
// members that items have.
var missesMember = regexp.MustCompile(`^body, at /data/\d+: required `)

// Missing returns the described responses that have not occurred.
func (c *Checker) Missing() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, o := range c.Document.Operations() {
		for _, response := range o.Map("responses") {
			if answer := name(o, response.Name); !c.seen[answer] {
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
func (c *Checker) checkRequest(x Exchange, o openapi.Operation) []string {
	var problems []string
	for _, p := range c.Document.Parameters(o) {
		var values []string
		switch p.Text("in") {
		case "query":
			values = x.Query[p.Text("name")]
		case "header":
			values = x.Header.Values(p.Text("name"))
		default: // path: already matched
			continue
		}
		what := p.Text("in") + " parameter " + p.Text("name")
		switch {
		case len(values) > 0:
			problems = append(problems, c.checkText(what, p.Map("schema"), values[0])...)
		case p.Value("required") == true:
			problems = append(problems, what+" is described as required, but the request succeeded without it")
		}
	}
	if authorization := x.Header.Get("Authorization"); authorization == "" && needsCredential(o) {
		problems = append(problems, "a credential is described as required, but the request succeeded without it")
	}
	body := c.Document.Resolve(o.Map("requestBody"))
	switch {
	case len(x.Body) > 0 && body != nil:
		contentType := x.Header.Get("Content-Type")
		problems = append(problems, c.checkBody("body of the request", body.Map("content"), contentType, x.Body)...)
	case len(x.Body) == 0 && body.Value("required") == true:
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

func (c *Checker) checkBody(what string, content openapi.Object, contentType string, body []byte) []string {
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
	return c.schemas.validate(what, schema, value)
}

// home is the base URL of the document and its schemas in the compiler. Nothing is fetched.
const home = "https://described.invalid/"

// schemas compiles each schema once.
type schemas struct {
	document *openapi.Document

	mu       sync.Mutex
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema // by the schema's JSON
}

func newSchemas(d *openapi.Document) (*schemas, error) {
	document, err := decode(d.JSON())
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	if err := compiler.AddResource(home+"openapi.json", document); err != nil {
		return nil, err
	}
	return &schemas{document: d, compiler: compiler, compiled: map[string]*jsonschema.Schema{}}, nil
}

func (s *schemas) compile(schema openapi.Object) (*jsonschema.Schema, error) {
	text, err := json.Marshal(schema)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.compiled[string(text)]; known != nil {
		return known, nil
	}
	// References in the schema must point to the document.
	absolute := strings.ReplaceAll(string(text), `"$ref":"#/`, `"$ref":"`+home+`openapi.json#/`)
	value, err := decode([]byte(absolute))
	if err != nil {
		return nil, err
	}
	at := home + strconv.Itoa(len(s.compiled))
	if err := s.compiler.AddResource(at, value); err != nil {
		return nil, err
	}
	compiled, err := s.compiler.Compile(at)
	if err != nil {
		return nil, err
	}
	s.compiled[string(text)] = compiled
	return compiled, nil
}

// validate returns where the value does not match the schema, with the keyword. It returns no value, which may be a
// secret.
func (s *schemas) validate(what string, schema openapi.Object, value any) []string {
	compiled, err := s.compile(schema)
	if err != nil {
		return []string{fmt.Sprintf("the schema of the %s cannot be used: %v", what, err)}
	}
	var invalid *jsonschema.ValidationError
	if err := compiled.Validate(value); errors.As(err, &invalid) {
		return leaves(what, invalid)
	}
	return nil
}

func leaves(what string, e *jsonschema.ValidationError) []string {
	if len(e.Causes) == 0 {
		return []string{
			fmt.Sprintf("%s, at /%s: %s (%s)", what, strings.Join(e.InstanceLocation, "/"),
				strings.Join(e.ErrorKind.KeywordPath(), "/"), strings.TrimPrefix(e.SchemaURL, home)),
		}
	}
	var out []string
	for _, cause := range e.Causes {
		out = append(out, leaves(what, cause)...)
	}
	return out
}

// checkText checks a value in text form: of a header or a parameter.
func (c *Checker) checkText(what string, schema openapi.Object, text string) []string {
	var value any = text
	if c.Document.Resolve(schema).Text("type") == "integer" {
		number, err := strconv.ParseInt(text, 10, 64)
		if err != nil && !strings.ContainsAny(text, "0123456789") {
			return []string{what + " is not a number"}
		}
		value = json.Number(strconv.FormatInt(number, 10))
	}
	return c.schemas.validate(what, schema, value)
}
