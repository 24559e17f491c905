package openapicheck

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/almonerhq/almoner/shared/contract/openapi"
)

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
