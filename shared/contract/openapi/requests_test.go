package openapi

import (
	"strings"
	"testing"
)

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

// An example contains only members that its schema describes.
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
