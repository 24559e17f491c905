package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/goccy/go-yaml"
)

// An Object is an object whose members are in source order.
type Object []Member

// A Member is one name of an Object and its value: an Object, a []any, a string, a bool, a number or nil.
type Member struct {
	Name  string
	Value any
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
			if err := encode(&out, part); err != nil {
				return nil, err
			}
		}
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// encode writes JSON without escaping < and >, because the document is not embedded in HTML.
func encode(out *bytes.Buffer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	out.Truncate(out.Len() - 1) // the line break
	return nil
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
