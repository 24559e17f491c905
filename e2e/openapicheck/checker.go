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
	"fmt"
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
			problems = append(
				problems,
				c.checkText("header "+member.Name, header.Map("schema"), strings.Join(values, ", "))...)
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
