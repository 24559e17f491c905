// Package openapi builds the OpenAPI description of both services.
//
// The description is written by hand in parts/*.yaml. base.yaml contains the common parts of all operations. Each other
// file describes one area: the service that has its routes, its position in the document, its tags, paths and
// components. New combines the files for one deployment. Invariants:
//
//	O1  Every route of both services is described, and no other (the services' tests check their routes).
//	O2  The end-to-end tests receive only described responses, and every described response (e2e).
//	O3  It is OpenAPI 3.1, and its examples match their schemas (e2e).
//
// resourceapi serves it as JSON and as a page.
package openapi

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/net/web"
)

//go:embed parts/*.yaml
var files embed.FS

// The services whose routes the parts describe.
const (
	Authserver  = "authserver"
	Resourceapi = "resourceapi"
)

// methods are the fields of a path item that are operations, in the order of the list.
var methods = []string{"get", "post", "put", "patch", "delete", "options"}

// A Document describes the API of one deployment. It is immutable.
type Document struct {
	Root Object

	encoded    []byte
	operations []Operation
}

// An Operation is one method of one path.
type Operation struct {
	Service string // the service that has the route
	Method  string // in capitals
	Path    string // with {names} for parameters
	Object
	Item Object // the path item, which may have further parameters
}

// New makes the description of the API at baseURL, which must have no trailing slash.
func New(baseURL string) (*Document, error) {
	var permissions []string
	for _, entry := range perm.All() {
		permissions = append(permissions, string(entry.ID))
	}
	fill := strings.NewReplacer("{base_url}", baseURL, `"{permissions}"`, `["`+strings.Join(permissions, `", "`)+`"]`)
	root, err := read("base", fill)
	if err != nil {
		return nil, err
	}
	parts, err := readParts(fill)
	if err != nil {
		return nil, err
	}
	tags, paths, components := root.List("tags"), Object{}, root.Map("components")
	var operations []Operation
	for _, part := range parts {
		tags = append(tags, part.List("tags")...)
		if paths, err = join(paths, part.Map("paths")); err != nil {
			return nil, err
		}
		operations = append(operations, operationsOf(part.Text("service"), part.Map("paths"))...)
		for _, kind := range part.Map("components") {
			joined, err := join(components.Map(kind.Name), kind.Object())
			if err != nil {
				return nil, err
			}
			components = components.with(kind.Name, joined)
		}
	}
	root = root.with("tags", tags).with("paths", paths).with("components", components)
	encoded, err := web.EncodeJSON(root) // not embedded in HTML
	return &Document{root, encoded, operations}, err
}

// readParts returns the parts that describe operations, in the order that each gives.
func readParts(fill *strings.Replacer) ([]Object, error) {
	names, err := files.ReadDir("parts")
	if err != nil {
		return nil, err
	}
	var parts []Object
	for _, entry := range names {
		name := strings.TrimSuffix(entry.Name(), ".yaml")
		if name == "base" {
			continue
		}
		part, err := read(name, fill)
		if err != nil {
			return nil, err
		}
		if service := part.Text("service"); service != Authserver && service != Resourceapi {
			return nil, fmt.Errorf("%s: the service %q is unknown", name, service)
		}
		parts = append(parts, part)
	}
	slices.SortStableFunc(parts, func(a, b Object) int { return cmp.Compare(position(a), position(b)) })
	return parts, nil
}

func position(part Object) uint64 {
	order, _ := part.Value("order").(uint64)
	return order
}

func read(name string, fill *strings.Replacer) (Object, error) {
	content, err := files.ReadFile("parts/" + name + ".yaml")
	if err != nil {
		return nil, err
	}
	part, err := readPart(fill.Replace(string(content)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return part, nil
}

// join combines the members of both objects. A name in both is an error.
func join(m, more Object) (Object, error) {
	for _, member := range more {
		if m.Value(member.Name) != nil {
			return nil, fmt.Errorf("%s is described twice", member.Name)
		}
		m = append(m, member)
	}
	return m, nil
}

// JSON returns the document as JSON.
func (d *Document) JSON() []byte { return slices.Clone(d.encoded) }

// Operations returns all operations in the order of the document.
func (d *Document) Operations() []Operation { return slices.Clone(d.operations) }

func operationsOf(service string, paths Object) []Operation {
	var out []Operation
	for _, path := range paths {
		item := path.Object()
		for _, method := range methods {
			if operation := item.Map(method); operation != nil {
				out = append(out, Operation{service, strings.ToUpper(method), path.Name, operation, item})
			}
		}
	}
	return out
}

// Resolve follows a $ref within the document. It returns a value without $ref unchanged. Members beside a
// $ref replace those of the referenced object.
func (d *Document) Resolve(value Object) Object {
	if value.Text("$ref") == "" {
		return value
	}
	out := slices.Clone(d.Resolve(d.Lookup(value.Text("$ref"))))
	for _, member := range value {
		if member.Name != "$ref" {
			out = out.with(member.Name, member.Value)
		}
	}
	return out
}

// Lookup returns the object that a reference such as #/components/schemas/Id names, or nil.
func (d *Document) Lookup(reference string) Object {
	found := d.Root
	for name := range strings.SplitSeq(strings.TrimPrefix(reference, "#/"), "/") {
		found = found.Map(strings.NewReplacer("~1", "/", "~0", "~").Replace(name))
	}
	return found
}

// Example returns the first example of a media type, parameter or header, and whether there is one.
func (d *Document) Example(of Object) (any, bool) {
	if example := of.Value("example"); example != nil {
		return example, true
	}
	for _, named := range of.Map("examples") {
		return d.Resolve(named.Object()).Value("value"), true
	}
	return nil, false
}

// At returns the operations at a request path. If several paths match, the one with the longest literal
// beginning wins (OpenAPI, Paths Object: concrete paths are matched before templated ones).
func (d *Document) At(path string) []Operation {
	if path == "/mcp/" { // answered like the path without the slash (contract, section 7a)
		path = "/mcp"
	}
	var found []Operation
	best := -1
	for _, o := range d.operations {
		literal, matches := d.match(o, path)
		switch {
		case !matches || literal < best:
		case literal > best:
			best, found = literal, []Operation{o}
		default:
			found = append(found, o)
		}
	}
	return found
}

// Find returns the operation of a method at a request path.
func (d *Document) Find(method, path string) (Operation, bool) {
	for _, o := range d.At(path) {
		if o.Method == method {
			return o, true
		}
	}
	return Operation{}, false
}

// Parameters returns the parameters of the path and of the method.
func (d *Document) Parameters(o Operation) []Object {
	var out []Object
	for _, list := range [][]any{o.Item.List("parameters"), o.List("parameters")} {
		for _, p := range list {
			p, _ := p.(Object)
			out = append(out, d.Resolve(p))
		}
	}
	return out
}

// match compares segment by segment and returns how many of the first segments are literal.
func (d *Document) match(o Operation, path string) (literal int, matches bool) {
	described, sent := strings.Split(o.Path, "/"), strings.Split(path, "/")
	if len(described) != len(sent) {
		return 0, false
	}
	varies := false
	for i, segment := range described {
		name, isVariable := strings.CutPrefix(strings.TrimSuffix(segment, "}"), "{")
		switch {
		case isVariable && d.mayBe(o, name, sent[i]):
			varies = true
		case isVariable || segment != sent[i]:
			return 0, false
		case !varies:
			literal++
		}
	}
	return literal, true
}

// mayBe reports whether the segment can be a value of the parameter: one of its enum values, or any non-empty
// text if it has none.
func (d *Document) mayBe(o Operation, name, segment string) bool {
	for _, p := range d.Parameters(o) {
		values := d.Resolve(p.Map("schema")).List("enum")
		if p.Text("name") == name && len(values) > 0 {
			return slices.Contains(values, any(segment))
		}
	}
	return segment != ""
}

// An Object is an object whose members are in source order.
type Object []Member

// A Member is one name of an Object and its value: an Object, a []any, a string, a bool, a number or nil.
type Member struct {
	Name  string
	Value any
}

// Object returns the value if it is an object, or nil.
func (m Member) Object() Object {
	child, _ := m.Value.(Object)
	return child
}

// Value returns the member's value, or nil.
func (o Object) Value(name string) any {
	for _, member := range o {
		if member.Name == name {
			return member.Value
		}
	}
	return nil
}

// Map returns the member if it is an object, or nil.
func (o Object) Map(name string) Object {
	child, _ := o.Value(name).(Object)
	return child
}

// Text returns the member if it is a string, or "".
func (o Object) Text(name string) string {
	text, _ := o.Value(name).(string)
	return text
}

// List returns the member if it is a list, or nil.
func (o Object) List(name string) []any {
	list, _ := o.Value(name).([]any)
	return list
}

// MarshalJSON preserves the order of the members.
func (o Object) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, member := range o {
		if i > 0 {
			out.WriteByte(',')
		}
		for j, part := range []any{member.Name, member.Value} {
			if j > 0 {
				out.WriteByte(':')
			}
			encoded, err := web.EncodeJSON(part)
			if err != nil {
				return nil, err
			}
			out.Write(encoded)
		}
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// readPart parses one file.
func readPart(content string) (Object, error) {
	var slice yaml.MapSlice
	if err := yaml.UnmarshalWithOptions([]byte(content), &slice, yaml.UseOrderedMap()); err != nil {
		return nil, err
	}
	read, err := ordered(slice)
	if err != nil {
		return nil, err
	}
	return read.(Object), nil
}

func ordered(value any) (any, error) {
	switch value := value.(type) {
	case yaml.MapSlice:
		out := Object{}
		for _, item := range value {
			child, err := ordered(item.Value)
			if err != nil {
				return nil, err
			}
			name, isText := item.Key.(string)
			if !isText {
				return nil, fmt.Errorf("the key %v is not a string: put it in quotes", item.Key)
			}
			out = out.with(name, child)
		}
		return out, nil
	case []any:
		out := make([]any, len(value))
		for i, item := range value {
			child, err := ordered(item)
			if err != nil {
				return nil, err
			}
			out[i] = child
		}
		return out, nil
	}
	return value, nil
}

// with sets a member, replacing one of the same name: a member beside a merged map (<<) overrides it.
func (o Object) with(name string, value any) Object {
	for i := range o {
		if o[i].Name == name {
			o[i].Value = value
			return o
		}
	}
	return append(o, Member{name, value})
}
