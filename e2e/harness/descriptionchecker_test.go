package harness

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi/datamodel"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/almonerhq/almoner/shared/contract/openapi"
)

func newChecker(t *testing.T) *DescriptionChecker {
	t.Helper()
	b, err := newDescriptionChecker()
	must(t, err)
	return b
}

// Invariant O3 of package openapi, checked with the OpenAPI Initiative's schema of OpenAPI 3.1.
func TestO3_DocumentIsOpenAPI31(t *testing.T) {
	t.Parallel()
	meta, err := decode([]byte(datamodel.OpenAPI31SchemaData))
	must(t, err)
	compiler := jsonschema.NewCompiler()
	must(t, compiler.AddResource(descriptionURL+"meta", meta))
	schema, err := compiler.Compile(descriptionURL + "meta")
	must(t, err)
	document, err := decode(newChecker(t).Document.JSON())
	must(t, err)
	if err := schema.Validate(document); err != nil {
		t.Error(err)
	}
	document.(map[string]any)["paths"].(map[string]any)["no-slash"] = map[string]any{}
	if schema.Validate(document) == nil {
		t.Error("a path without a slash is valid: the schema checks nothing")
	}
}

// Invariant O3: every example matches its schema.
func TestO3_ExamplesMatchSchemas(t *testing.T) {
	t.Parallel()
	b := newChecker(t)
	checked := 0
	content := func(what string, content openapi.Object) {
		for _, member := range content {
			media := member.Value.(openapi.Object)
			examples := map[string]any{"": media.Value("example")}
			for _, named := range media.Map("examples") {
				examples[named.Name] = named.Value.(openapi.Object).Value("value")
			}
			for name, example := range examples {
				schema := media.Map("schema")
				if object, isObject := example.(openapi.Object); isObject && schema != nil {
					encoded, err := object.MarshalJSON()
					must(t, err)
					value, err := decode(encoded)
					must(t, err)
					checked++
					for _, problem := range b.validate(what+" "+name, schema, value) {
						t.Error(problem)
					}
				}
			}
		}
	}
	for _, o := range b.Document.Operations() {
		content(o.Method+" "+o.Path, b.Document.Resolve(o.Map("requestBody")).Map("content"))
		for _, response := range o.Map("responses") {
			content(o.Method+" "+o.Path+" "+response.Name,
				b.Document.Resolve(response.Value.(openapi.Object)).Map("content"))
		}
		for _, p := range b.Document.Parameters(o) {
			if text, isText := p.Value("example").(string); isText {
				for _, problem := range b.checkText(o.Path+" "+p.Text("name"), p.Map("schema"), text) {
					t.Error(problem)
				}
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d examples were checked", checked)
	}
}

const (
	recordJSON = `{"id":"0199a1c2-7f41-7c55-8b9e-3a4f5d6e7f80","name":"Winter shelter","summary":"","status":"draft",` +
		`"startsOn":null,"endsOn":null,"createdAt":"2026-09-30T08:15:00.000000Z",` +
		`"updatedAt":"2026-09-30T08:15:00.000000Z"}`
	workspace = "5e0c4b5a-6b1f-4f7e-9a53-0f7f3f1c2a10"
)

// created returns an exchange that matches the description.
func created() exchange {
	return exchange{
		request: &http.Request{
			Method: "POST",
			URL:    &url.URL{Path: "/v1/programmes/programmes"},
			Header: http.Header{
				"Authorization": {"Bearer x"},
				"X-Tenant-Id":   {workspace},
				"Content-Type":  {"application/json"},
			},
		},
		sent: []byte(`{"name":"Winter shelter"}`),
		response: &http.Response{
			StatusCode: 201,
			Header:     http.Header{"Content-Type": {"application/json"}, "Etag": {`"1"`}, "Location": {"/somewhere"}},
		},
		answer: []byte(recordJSON),
	}
}

// Check finds each of these differences.
func TestCheck_FindsDifferences(t *testing.T) {
	t.Parallel()
	b := newChecker(t)
	missing := len(b.Missing())
	if problems := b.check(created()); len(problems) > 0 || missing < 150 || len(b.Missing()) != missing-1 {
		t.Fatalf("differences in a correct exchange: %q; %d responses are missing, then %d", problems, missing,
			len(b.Missing()))
	}
	for want, change := range map[string]func(*exchange){
		"418 is not described":       func(x *exchange) { x.response.StatusCode = 418 },
		"header ETag is missing":     func(x *exchange) { x.response.Header.Del("ETag") },
		"header ETag, at /: pattern": func(x *exchange) { x.response.Header.Set("ETag", "1") },
		"media type of the body":     func(x *exchange) { x.response.Header.Set("Content-Type", "text/html") },
		"body is not JSON":           func(x *exchange) { x.answer = []byte(recordJSON + recordJSON) },
		"body, at /: additionalProperties": func(x *exchange) {
			x.answer = []byte(strings.Replace(recordJSON, "{", `{"secret":"x",`, 1))
		},
		"body, at /: required": func(x *exchange) { x.answer = []byte(`{}`) },
		"body, at /status: enum": func(x *exchange) {
			x.answer = []byte(strings.Replace(recordJSON, "draft", "open", 1))
		},
		"body, at /createdAt: format": func(x *exchange) {
			x.answer = []byte(strings.Replace(recordJSON, "2026-09-30T", "2026-19-30T", 1))
		},
		"header parameter X-Tenant-Id is described": func(x *exchange) { x.request.Header.Del("X-Tenant-Id") },
		"a credential is described as required":     func(x *exchange) { x.request.Header.Del("Authorization") },
		"body of the request, at /: required":       func(x *exchange) { x.sent = []byte(`{}`) },
		"media type of the body of the request": func(x *exchange) {
			x.request.Header.Set("Content-Type", "text/plain")
		},
		"a body is described as required": func(x *exchange) { x.sent = nil },
		"a path that is not described":    func(x *exchange) { x.request.URL.Path = "/v1/unheard-of" },
		"not rejected with 405":           func(x *exchange) { x.request.Method = "PUT" },
		"Allow is \"GET\"": func(x *exchange) {
			x.request.Method, x.response.StatusCode = "PUT", 405
			x.answer = []byte(`{"error":{"code":"METHOD_NOT_ALLOWED","message":"No."}}`)
			x.response.Header.Set("Allow", "GET")
		},
		"a body that is not described": func(x *exchange) {
			x.request.Method, x.response.StatusCode = "DELETE", 204
			x.request.URL.Path = "/v1/account/tenants/" + workspace + "/oauth-clients/" + workspace
		},
	} {
		x := created()
		change(&x)
		if problems := strings.Join(b.check(x), "\n"); !strings.Contains(problems, want) {
			t.Errorf("want %q, got %q", want, problems)
		}
	}
}

// The items of a list have the members that `fields` names, which may lack required ones. They have no others.
func TestCheck_FieldsChooseMembers(t *testing.T) {
	t.Parallel()
	b := newChecker(t)
	for _, c := range []struct{ query, item, problem string }{
		{"", recordJSON, ""},
		{"fields=name", `{"name":"Winter shelter"}`, ""},
		{"", `{"name":"Winter shelter"}`, "body, at /data/0: required"},
		{"fields=name", `{"name":1}`, "body, at /data/0/name: type"},
		{"fields=name", `{"secret":"x"}`, "body, at /data/0: additionalProperties"},
	} {
		x := created()
		x.request.Method, x.request.URL.RawQuery, x.response.StatusCode, x.sent = "GET", c.query, 200, nil
		x.answer = []byte(`{"data":[` + c.item + `],"meta":{"count":1}}`)
		problems := strings.Join(b.check(x), "\n")
		if !strings.HasPrefix(problems, c.problem) || (c.problem == "") != (problems == "") {
			t.Errorf("%s of ?%s: %q, want %q", c.item, c.query, problems, c.problem)
		}
	}
}
