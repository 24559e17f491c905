package openapicheck

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/almonerhq/almoner/shared/openapi"
)

// An Exchange is a request and what came back for it.
type Exchange struct {
	Method, Path string // the path as it was sent
	Query        url.Values
	Header       http.Header
	Body         []byte

	Status       int
	AnswerHeader http.Header
	Answer       []byte
}

// A Book judges exchanges. It is safe for concurrent use.
type Book struct {
	Document *openapi.Document

	schemas *schemas
	mu      sync.Mutex
	seen    map[string]bool // of answers, as name spells them
}

// New opens the book. Where the deployment is does not matter to it.
func New() (*Book, error) {
	document, err := openapi.New("https://api.example.org")
	if err != nil {
		return nil, err
	}
	s, err := newSchemas(document)
	if err != nil {
		return nil, err
	}
	return &Book{Document: document, schemas: s, seen: map[string]bool{}}, nil
}

func name(o openapi.Operation, status string) string { return o.Method + " " + o.Path + " " + status }

// Judge says in which ways the exchange is not as described. No sentence holds a value of the exchange.
func (b *Book) Judge(x Exchange) []string {
	method := x.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	there := b.Document.At(x.Path)
	operation, found := b.Document.Find(method, x.Path)
	switch {
	case len(there) == 0:
		return b.judgeElsewhere(x)
	case !found:
		return b.judgeWrongMethod(x, there)
	}
	status := strconv.Itoa(x.Status)
	response, _ := operation.Map("responses").Value(status).(openapi.Object)
	if response == nil {
		return []string{status + " is not described"}
	}
	problems := b.judgeAnswer(x, b.Document.Resolve(response))
	if x.Status < 300 {
		problems = append(problems, b.judgeRequest(x, operation)...)
	}
	if len(problems) == 0 {
		b.mu.Lock()
		b.seen[name(operation, status)] = true
		b.mu.Unlock()
	}
	return problems
}

// judgeElsewhere: at a path that is not described there is nothing, or what is before it has lost the service.
func (b *Book) judgeElsewhere(x Exchange) []string {
	switch x.Status {
	case http.StatusNotFound:
		return b.judgeAnswer(x, b.component("NoSuchPath"))
	case http.StatusServiceUnavailable:
		return nil
	}
	return []string{"there is something at a path that is not described"}
}

// judgeWrongMethod: a method that is not described is refused, and Allow names those that are. What browsers ask before
// they read a public document from another origin is answered by the same words everywhere (CORS).
func (b *Book) judgeWrongMethod(x Exchange, there []openapi.Operation) []string {
	if x.Method == http.MethodOptions && x.Header.Get("Access-Control-Request-Method") != "" &&
		x.Status == http.StatusNoContent {
		return nil
	}
	if x.Status == http.StatusServiceUnavailable { // nobody is there to refuse it
		return nil
	}
	if x.Status != http.StatusMethodNotAllowed {
		return []string{"a method that is not described is not refused with 405"}
	}
	var want []string
	for _, o := range there {
		want = append(want, o.Method)
		if o.Method == http.MethodGet {
			want = append(want, http.MethodHead)
		}
	}
	slices.Sort(want)
	problems := b.judgeAnswer(x, b.component("WrongMethod"))
	if got := x.AnswerHeader.Get("Allow"); got != strings.Join(want, ", ") {
		problems = append(problems, fmt.Sprintf("Allow is %q, described are %v", got, want))
	}
	return problems
}

func (b *Book) component(response string) openapi.Object {
	return b.Document.Lookup("#/components/responses/" + response)
}

func (b *Book) judgeAnswer(x Exchange, response openapi.Object) []string {
	var problems []string
	for _, member := range response.Map("headers") {
		header, _ := member.Value.(openapi.Object)
		header = b.Document.Resolve(header)
		values := x.AnswerHeader.Values(member.Name)
		switch {
		case len(values) == 0 && header.Value("required") == true:
			problems = append(problems, "header "+member.Name+" is missing")
		case len(values) > 0:
			problems = append(
				problems,
				b.judgeText("header "+member.Name, header.Map("schema"), strings.Join(values, ", "))...)
		}
	}
	content := response.Map("content")
	switch {
	case x.Method == http.MethodHead:
		return problems
	case len(content) == 0 && len(x.Answer) > 0:
		return append(problems, "there is a body, and none is described")
	case len(content) == 0:
		return problems
	}
	return append(problems, b.judgeBody("body", content, x.AnswerHeader.Get("Content-Type"), x.Answer)...)
}

// Missing are the answers described that have not occurred.
func (b *Book) Missing() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, o := range b.Document.Operations() {
		for _, response := range o.Map("responses") {
			if answer := name(o, response.Name); !b.seen[answer] {
				out = append(out, answer)
			}
		}
	}
	return out
}

func decode(content []byte) (any, error) {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(content))
	if err == nil && !json.Valid(content) {
		return nil, fmt.Errorf("there is more than one value")
	}
	return value, err
}
