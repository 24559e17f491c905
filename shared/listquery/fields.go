package listquery

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxNamed is the length in characters to which a message repeats an unknown field.
const maxNamed = 64

// Fields returns the members of the records that the parameter fields asks for, in the order of known, or nil for all.
// It adds to problems and names an unknown field.
func Fields(values, problems map[string]string, known []string) []string {
	text, given := values["fields"]
	if !given {
		return nil
	}
	asked := strings.Split(text, ",")
	for _, name := range asked {
		if !slices.Contains(known, name) {
			problems["fields"] = "Unknown field " + quoted(name) + ". The fields are: " +
				strings.Join(known, ", ") + "."
			return nil
		}
	}
	return slices.DeleteFunc(slices.Clone(known), func(name string) bool { return !slices.Contains(asked, name) })
}

// quoted returns a name for a message: short, and without invisible characters.
func quoted(name string) string {
	if utf8.RuneCountInString(name) > maxNamed {
		name = string([]rune(name)[:maxNamed]) + "…"
	}
	return strconv.QuoteToGraphic(name)
}

// FieldsOf returns the names of the JSON members of a struct, in order.
func FieldsOf[T any]() []string {
	var names []string
	for field := range reflect.TypeFor[T]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// Project appends the JSON object record with the members that are in fields alone.
func Project(b, record []byte, fields []string) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(record, &members); err != nil {
		return b, err
	}
	b = append(b, '{')
	first := true
	for _, name := range fields {
		value, has := members[name]
		if !has {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = strconv.AppendQuote(b, name)
		b = append(append(b, ':'), value...)
	}
	return append(b, '}'), nil
}
