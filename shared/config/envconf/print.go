package envconf

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Warn writes the warnings to the log.
func (r Reading) Warn(log *slog.Logger) {
	for _, warning := range r.Warnings {
		log.Warn("settings warning", "warning", warning)
	}
}

// Print writes the settings in force: one line per setting with its source, then the warnings. It writes
// nothing if there are mistakes, because the settings are not in force. As JSON it writes one object with
// everything, including mistakes.
func (r Reading) Print(out io.Writer, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(struct {
			OK       bool     `json:"ok"`
			Settings []Value  `json:"settings"`
			Mistakes Mistakes `json:"mistakes"`
			Warnings []string `json:"warnings"`
		}{len(r.Mistakes) == 0, r.Values, append(Mistakes{}, r.Mistakes...), append([]string{}, r.Warnings...)})
	}
	if len(r.Mistakes) > 0 {
		return nil
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, v := range r.Values {
		from := string(v.From)
		if v.Path != "" {
			from += " " + v.Path
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", v.Setting, v.shown(), from) // Flush returns the error
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, warning := range r.Warnings {
		if _, err := fmt.Fprintln(out, "warning: "+warning); err != nil {
			return err
		}
	}
	return nil
}

// shown returns the value in one line.
func (v Value) shown() string {
	switch {
	case !v.Set:
		return "(not set)"
	case v.Secret:
		return "(set)"
	case strings.ContainsFunc(v.Value, func(c rune) bool { return !strconv.IsPrint(c) }):
		return strconv.Quote(v.Value)
	}
	return v.Value
}

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
