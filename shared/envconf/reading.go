package envconf

import (
	"fmt"
	"reflect"
)

// An Origin is the source of a setting's value.
type Origin string

// The origins.
const (
	FromDefault     Origin = "default"
	FromEnvironment Origin = "environment"
	FromConfig      Origin = "config" // the settings file
	FromFile        Origin = "file"   // the file that NAME_FILE names
)

// A Value is a setting in force.
type Value struct {
	Setting string `json:"setting"`
	Value   string `json:"value"` // "" if it is a secret or not set
	Secret  bool   `json:"secret"`
	Set     bool   `json:"set"` // false if it has neither value nor default
	From    Origin `json:"from"`
	Path    string `json:"path,omitempty"` // of a file
}

// A Reading is the result of Load.
type Reading struct {
	Values   []Value // in the order of the struct
	Warnings []string
	Mistakes Mistakes
}

// File returns the file that the setting's value was read from, or "".
func (r Reading) File(setting string) string {
	for _, v := range r.Values {
		if v.Setting == setting && v.From == FromFile {
			return v.Path
		}
	}
	return ""
}

func (r *reader) values(target any) []Value {
	var out []Value
	fields := reflect.ValueOf(target).Elem()
	for _, s := range r.settings {
		v := Value{
			Setting: s.Name,
			Secret:  s.Secret,
			From:    FromDefault,
			Value:   fmt.Sprint(fields.FieldByName(s.field).Interface()),
		}
		if f, ok := r.found[s.Name]; ok {
			v.From, v.Path = f.origin, f.path
		}
		v.Set = v.Value != ""
		if s.Secret {
			v.Set, v.Value = !fields.FieldByName(s.field).IsZero(), ""
		}
		out = append(out, v)
	}
	return out
}
