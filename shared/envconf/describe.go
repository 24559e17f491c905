package envconf

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
)

// Describe lists the settings of a configuration struct from its tags. Fields of type credential.Secret are
// secrets.
func Describe(target any) []Setting { return settings(reflect.TypeOf(target)) }

// PrintSettings writes the list of settings.
func PrintSettings(out io.Writer, all []Setting, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(all)
	}
	for _, s := range all {
		about := "default: " + s.Default
		switch {
		case s.Required:
			about = "required"
		case s.Default == "":
			about = "optional"
		}
		if s.Secret {
			about += ", secret"
		}
		if _, err := fmt.Fprintf(out, "%s (%s)\n    %s\n", s.Name, about, s.Doc); err != nil {
			return err
		}
	}
	return nil
}
