package apidoc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/almonerhq/almoner/shared/openapi"
)

// A field is one member of a body. Name is its path: meta.count, data[].id.
type field struct {
	Name, Type, Text string
	Required         bool
}

// deepest is the maximum depth of listed fields.
const deepest = 4

// fields lists the members of a schema.
func (r reader) fields(schema openapi.Object) []field {
	var out []field
	r.list(schema, "", deepest, &out)
	return out
}

func (r reader) list(schema openapi.Object, under string, depth int, out *[]field) {
	schema = r.resolve(schema)
	if depth == 0 || schema == nil {
		return
	}
	if items := schema.Map("items"); items != nil {
		r.list(items, under+"[]", depth, out)
		return
	}
	required := schema.List("required")
	prefix := under
	if prefix != "" {
		prefix += "."
	}
	for _, member := range schema.Map("properties") {
		described, isSchema := member.Value.(openapi.Object)
		if !isSchema { // false: the member is forbidden
			continue
		}
		child := r.resolve(described)
		*out = append(
			*out,
			field{
				prefix + member.Name,
				r.typed(described),
				plain(child.Text("description")),
				slices.Contains(required, any(member.Name)),
			},
		)
		r.list(child, prefix+member.Name, depth-1, out)
	}
	for _, either := range schema.List("oneOf") {
		either, _ := either.(openapi.Object)
		r.list(either, under, depth-1, out)
	}
}

// resolve resolves the $ref and allOf of a schema. If both define a member, the outer definition extends the inner one.
func (r reader) resolve(schema openapi.Object) openapi.Object {
	inner := openapi.Object{}
	if reference := schema.Text("$ref"); reference != "" {
		inner = r.resolve(r.document.Lookup(reference))
	}
	for _, one := range schema.List("allOf") {
		one, _ := one.(openapi.Object)
		inner = merge(inner, r.resolve(one))
	}
	return merge(inner, schema)
}

func merge(inner, outer openapi.Object) openapi.Object {
	out := slices.Clone(inner)
	for _, member := range outer {
		at := slices.IndexFunc(out, func(m openapi.Member) bool { return m.Name == member.Name })
		switch {
		case member.Name == "$ref" || member.Name == "allOf":
		case at < 0:
			out = append(out, member)
		default:
			within, isObject := out[at].Value.(openapi.Object)
			further, alsoObject := member.Value.(openapi.Object)
			if isObject && alsoObject {
				member.Value = merge(within, further)
			}
			out[at] = member
		}
	}
	return out
}

// typed describes the type of a value with its limits and its default.
func (r reader) typed(schema openapi.Object) string {
	text, schema := r.kind(schema), r.resolve(schema)
	for _, limit := range []struct{ name, format string }{
		{"maxLength", ", up to %v characters"},
		{"maxItems", ", up to %v items"},
		{"default", ", default %v"},
	} {
		if value := schema.Value(limit.name); value != nil {
			text += fmt.Sprintf(limit.format, value)
		}
	}
	return text
}

// kind describes the type of a value in a few words.
func (r reader) kind(schema openapi.Object) string {
	schema = r.resolve(schema)
	var choices []string
	for _, one := range schema.List("enum") {
		choices = append(choices, fmt.Sprint(one))
	}
	for _, one := range schema.List("oneOf") {
		one, _ := one.(openapi.Object)
		if kind := r.kind(one); !slices.Contains(choices, kind) {
			choices = append(choices, kind)
		}
	}
	switch {
	case len(choices) > 0:
		return strings.Join(choices, " | ")
	case schema.Value("const") != nil:
		return fmt.Sprint(schema.Value("const"))
	case schema.Map("items") != nil:
		return "array of " + r.kind(schema.Map("items"))
	}
	named := map[string]string{"uuid": "UUID", "uri": "URL", "date-time": "time", "date": "date"}
	return cmp.Or(named[schema.Text("format")], schema.Text("type"))
}
