package openapi

import (
	"slices"
	"strings"
)

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
