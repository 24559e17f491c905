package openapi

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/rest"
)

func described(t *testing.T) *Document {
	t.Helper()
	d, err := New("https://api.example.org")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestNew_FillsBaseURL(t *testing.T) {
	d := described(t)
	text := string(d.JSON())
	if !json.Valid(d.JSON()) || strings.Contains(text, "{base_url}") ||
		!strings.Contains(text, `"servers":[{"url":"https://api.example.org"}]`) {
		t.Error(text[:min(len(text), 2000)])
	}
	if strings.Contains(text, `"<<"`) {
		t.Error("a merged map was not merged")
	}
}

// Clients derive function names and links from these, so each must be present and unique.
func TestOperations_HaveIDTagAndSummary(t *testing.T) {
	d := described(t)
	var tags, seen []string
	for _, tag := range d.Root.List("tags") {
		tags = append(tags, tag.(Object).Text("name"))
	}
	for _, o := range d.Operations() {
		id := o.Text("operationId")
		if id == "" || slices.Contains(seen, id) {
			t.Errorf("%s %s: operationId %q", o.Method, o.Path, id)
		}
		seen = append(seen, id)
		if list := o.List("tags"); len(list) != 1 || !slices.Contains(tags, list[0].(string)) ||
			o.Text("summary") == "" {
			t.Errorf("%s %s: no group or no summary", o.Method, o.Path)
		}
		if o.Value("security") == nil {
			t.Errorf("%s %s does not say who may call it", o.Method, o.Path)
		}
	}
	if len(seen) < 30 {
		t.Errorf("only %d operations", len(seen))
	}
}

func TestReferences_ResolveAndComponentsAreUsed(t *testing.T) {
	d := described(t)
	text := string(d.JSON())
	for _, kind := range d.Root.Map("components") {
		for _, component := range kind.Value.(Object) {
			reference := "#/components/" + kind.Name + "/" + component.Name
			everywhere := kind.Name == "securitySchemes" ||
				slices.Contains([]string{"NoSuchPath", "WrongMethod", "ServerError"}, component.Name)
			if !everywhere && !strings.Contains(text, `"$ref":"`+reference+`"`) {
				t.Errorf("%s is not used", reference)
			}
		}
	}
	walk(d.Root, func(m Object) {
		if reference := m.Text("$ref"); reference != "" && len(d.Lookup(reference)) == 0 {
			t.Errorf("%v does not resolve", m.Value("$ref"))
		}
	})
}

// Readers see what each response looks like.
func TestResponses_HaveExamples(t *testing.T) {
	d := described(t)
	for _, o := range d.Operations() {
		for _, answer := range o.Map("responses") {
			content := d.Resolve(answer.Value.(Object)).Map("content").Map("application/json")
			if _, has := d.Example(content); content != nil && !has {
				t.Errorf("%s %s %s: no example", o.Method, o.Path, answer.Name)
			}
		}
	}
}

func TestJoin_RefusesDuplicateNames(t *testing.T) {
	if _, err := join(Object{{"/v1", Object{}}}, Object{{"/v1", Object{}}}); err == nil {
		t.Error("join accepted a duplicate name")
	}
	if _, err := readPart("200: yes"); err == nil {
		t.Error("readPart accepted a key that is not a string")
	}
}

func walk(value any, visit func(Object)) {
	switch value := value.(type) {
	case Object:
		visit(value)
		for _, member := range value {
			walk(member.Value, visit)
		}
	case []any:
		for _, item := range value {
			walk(item, visit)
		}
	}
}

func TestFind_MatchesPaths(t *testing.T) {
	d := described(t)
	for sent, want := range map[string]string{
		"GET /v1/programmes/programmes":                               "listProgrammes",
		"GET /v1/programmes/programmes/7":                             "readProgramme",
		"POST /v1/programmes/programmes/imports":                      "importProgrammes",
		"GET /v1/programmes/programmes/imports":                       "", // imports is not a programme
		"GET /v1/programmes/programmes/imports/7":                     "readImport",
		"POST /v1/programmes/programmes/7/transitions":                "moveProgramme",
		"GET /v1/programmes/programmes/":                              "",
		"GET /.well-known/oauth-protected-resource/mcp":               "readProtectedResource",
		"GET /.well-known/oauth-protected-resource/elsewhere":         "",
		"DELETE /v1/account/tenants/a/oauth-clients/b":                "deleteApplication",
		"PUT /v1/account/tenants/a/oauth-clients/b":                   "",
		"GET /mcp/.well-known/openid-configuration":                   "readServerOfMCP",
		"GET /mcp/.well-known/oauth-authorization-server/and/further": "",
	} {
		method, path, _ := strings.Cut(sent, " ")
		if o, _ := d.Find(method, path); o.Text("operationId") != want {
			t.Errorf("%s: %q, want %q", sent, o.Text("operationId"), want)
		}
	}
}

// The description excludes what the server refuses: unknown members and parameters, and search texts that are
// too long.
func TestRequests_AreAsStrictAsResourceAPI(t *testing.T) {
	d := described(t)
	bodies, searches := 0, 0
	for _, o := range d.Operations() {
		if !strings.HasPrefix(o.Path, "/v1/") || strings.HasPrefix(o.Path, "/v1/account/") {
			continue
		}
		for _, one := range o.List("parameters") {
			parameter := d.Resolve(one.(Object))
			schema := d.Resolve(parameter.Map("schema"))
			if parameter.Text("in") == "query" && parameter.Text("name") == "q" {
				if searches++; schema.Value("maxLength") == nil {
					t.Errorf("%s %s: q has no maxLength", o.Method, o.Path)
				}
			}
		}
		for _, kind := range []string{"application/json", "application/merge-patch+json"} {
			content := d.Resolve(o.Map("requestBody")).Map("content").Map(kind)
			if content == nil {
				continue
			}
			bodies++
			closed(t, d, o.Method+" "+o.Path, content.Map("schema"))
		}
	}
	if bodies < 6 || searches == 0 {
		t.Errorf("%d bodies, %d searches", bodies, searches)
	}
}

// closed checks that every object with members allows no others.
func closed(t *testing.T, d *Document, what string, schema Object) {
	t.Helper()
	schema = d.Resolve(schema)
	members := schema.Map("properties")
	if open := schema.Value("additionalProperties"); members != nil && open != false {
		t.Errorf("%s allows unknown members", what)
	}
	for _, member := range members {
		if inner, isSchema := member.Value.(Object); isSchema {
			closed(t, d, what+" "+member.Name, inner)
		}
	}
	if items := schema.Map("items"); items != nil {
		closed(t, d, what+"[]", items)
	}
}

func TestExamples_HaveOnlyDescribedMembers(t *testing.T) {
	d := described(t)
	walk(d.Root, func(m Object) {
		example, hasExample := m.Value("example").(Object)
		if !hasExample || m.Map("schema") == nil {
			return
		}
		for _, member := range example {
			if !describes(d, m.Map("schema"), member.Name) {
				t.Errorf("the example has %s, which its schema does not", member.Name)
			}
		}
	})
}

// describes reports whether a schema, or one of its parts, has the member or allows any.
func describes(d *Document, schema Object, member string) bool {
	if schema.Map("properties").Value(member) != nil || schema.Value("additionalProperties") == true {
		return true
	}
	if reference := schema.Text("$ref"); reference != "" && describes(d, d.Lookup(reference), member) {
		return true
	}
	if _, open := schema.Value("additionalProperties").(Object); open {
		return true
	}
	for _, kind := range []string{"allOf", "oneOf", "anyOf"} {
		for _, one := range schema.List(kind) {
			if describes(d, one.(Object), member) {
				return true
			}
		}
	}
	return false
}

func TestMessages_IDIsNotNull(t *testing.T) {
	sent := described(t).Lookup("#/components/schemas/SentMessage")
	id := sent.Map("properties").Map("id")
	if len(id.List("oneOf")) != 2 || id.Value("type") != nil {
		t.Errorf("%v", id)
	}
}

// The services announce exactly the operations with `deprecated: true`, each with a notice that is long enough.
func TestDeprecated_MatchesDescription(t *testing.T) {
	announced := map[string]bool{}
	for _, one := range rest.Deprecated() {
		announced[one.Method+" "+one.Path] = true
		if one.Sunset.Sub(one.Since) < 180*24*time.Hour || one.Link == "" {
			t.Errorf("%s %s: the notice is too short, or has no link", one.Method, one.Path)
		}
	}
	for _, o := range described(t).Operations() {
		name := o.Method + " " + o.Path
		if marked := o.Value("deprecated") == true; marked != announced[name] {
			t.Errorf("%s: deprecated in the description %t, in package rest %t", name, marked, announced[name])
		}
		delete(announced, name)
	}
	for name := range announced {
		t.Errorf("%s is not described", name)
	}
}

// An operation that a member's credential can call says which permissions it demands, and no other does. Names of tools
// and operations are told apart.
func TestDemands_AreThoseOfOperationsWithCredential(t *testing.T) {
	d := described(t)
	demands, err := Demands()
	if err != nil || len(demands) < 40 {
		t.Fatalf("%d demands, %v", len(demands), err)
	}
	named := 0
	for _, o := range d.Operations() {
		takes := slices.ContainsFunc(o.List("security"), func(one any) bool {
			return one.(Object).Value("bearer") != nil || one.(Object).Value("assistant") != nil
		})
		permissions, called := o.Permissions()
		demand, listed := demands[o.Text("operationId")]
		if called != takes || listed != takes {
			t.Errorf("%s %s takes a member's credential: %t, has x-permissions: %t", o.Method, o.Path, takes, called)
		}
		for _, p := range permissions {
			if !perm.Known(p) {
				t.Errorf("%s %s demands %q", o.Method, o.Path, p)
			}
		}
		if takes && (demand.Anywhere != strings.HasPrefix(o.Path, "/v1/me") ||
			demand.ForAssistants != (o.Path == "/mcp") ||
			demand.Permissions.Scope() != permissions.Scope()) {
			t.Errorf("%s %s: %+v", o.Method, o.Path, demand)
		}
		for tool, permissions := range o.Tools() {
			named++
			if demand := demands[tool]; !demand.ForAssistants || demand.Permissions.Scope() != permissions.Scope() {
				t.Errorf("tool %s: %+v", tool, demand)
			}
		}
		if called {
			named++
		}
	}
	if named != len(demands) {
		t.Errorf("%d names have %d demands", named, len(demands)) // two of one name
	}
}
