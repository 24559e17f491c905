package envconf

import (
	"reflect"
	"strings"

	"github.com/almonerhq/almoner/shared/credential"
)

// A Setting is one documented setting of a configuration struct.
type Setting struct {
	Name     string `json:"name"`
	Default  string `json:"default,omitempty"`
	Required bool   `json:"required"`
	Secret   bool   `json:"secret"` // its value is never shown
	Doc      string `json:"doc"`

	field string
}

func settings(structType reflect.Type) []Setting {
	var out []Setting
	for _, field := range reflect.VisibleFields(structType) { // including embedded structs
		tag := field.Tag.Get("env")
		if tag == "" {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		out = append(out, Setting{
			Name:     name,
			Default:  field.Tag.Get("envDefault"),
			Required: strings.Contains(options, "required"),
			Secret:   field.Type == reflect.TypeFor[credential.Secret](),
			Doc:      field.Tag.Get("doc"),
			field:    field.Name,
		})
	}
	return out
}
