// Package envconf loads the configuration of a process and records where each value came from.
//
// It fills a struct with env, envDefault and doc tags (caarlos0/env). The first source that has a value wins:
//
// 1. the environment: NAME=value, or NAME_FILE=path, the file whose content is the value;
// 2. the settings file named by ALMONER_CONFIG: the same, in lines of NAME=value;
// 3. the default.
//
// Its rules, each with its test:
//
//  1. An empty value counts as no value: NAME= selects the default.
//  2. NAME and NAME_FILE in the same source are a mistake. One line feed at the end of such a file is not part of the
//     value.
//  3. A name that begins with ALMONER_ and is unknown to every Almoner program is a mistake, because a default would
//     silently apply instead. Names of other Almoner programs are allowed (names.txt), since all settings may be in one
//     place.
//  4. All mistakes are reported at once, each in a line that begins with the name of its setting.
//  5. A mistake never quotes a value or a path: it may be a secret in the wrong place.
//
// The main packages of both services and of the tools call it; `check-config` prints the result (Reading).
package envconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/almonerhq/almoner/shared/crypt/credential"
)

const prefix = "ALMONER_"

// unset is the end of the message about a required setting without a value.
const unset = " is not set"

// Config names the settings file. It is read from the environment only.
const Config = prefix + "CONFIG"

// Mistakes lists what is wrong with the settings, one line each.
type Mistakes []string

func (m Mistakes) Error() string {
	if len(m) == 1 {
		return m[0]
	}
	return fmt.Sprintf("%d mistakes in the settings:\n  %s", len(m), strings.Join(m, "\n  "))
}

// Advice returns what to add to the error of a command whose settings are missing, or "": the user may not know that a
// file can hold them.
func Advice(err error, environ []string) string {
	mistakes, ok := errors.AsType[Mistakes](err)
	missing := func(m string) bool { return strings.HasSuffix(m, unset) }
	named := func(pair string) bool {
		return strings.HasPrefix(pair, Config+"=") && pair != Config+"="
	}
	if !ok || !slices.ContainsFunc(mistakes, missing) || slices.ContainsFunc(environ, named) {
		return ""
	}
	return "Set it in the environment, or name a file with the settings: --config FILE"
}

// Load fills target, a pointer to a struct, and returns what it read, with warnings. Its error is a Mistakes.
// If target has a method Check() []error, it reports further mistakes, each beginning with the name of its
// setting. If target has a method Complete(), it derives settings from other settings.
func Load(target any, environ []string) (Reading, error) {
	r := reader{settings: settings(reflect.TypeOf(target).Elem()), found: map[string]found{}}
	r.gather(environ)
	r.parse(target)
	if checker, ok := target.(interface{ Check() []error }); ok {
		r.check(checker.Check())
	}
	if completer, ok := target.(interface{ Complete() }); ok && len(r.mistakes) == 0 {
		completer.Complete()
	}
	out := Reading{Values: r.values(target), Warnings: r.warnings, Mistakes: r.mistakes}
	if len(r.mistakes) > 0 {
		return out, r.mistakes
	}
	return out, nil
}

// A reader is the state of one Load.
type reader struct {
	settings []Setting
	found    map[string]found // by the setting's name
	mistakes Mistakes
	wrong    []string // names of settings with a mistake
	warnings []string
}

func (r *reader) mistake(name, words string) {
	r.mistakes = append(r.mistakes, name+" "+words)
	r.wrong = append(r.wrong, name)
}

// parse parses the texts into the fields of target.
func (r *reader) parse(target any) {
	texts := map[string]string{}
	for name, f := range r.found {
		texts[name] = f.text
	}
	err := env.ParseWithOptions(target, env.Options{Environment: texts})
	errs := []error{err}
	if many, ok := errors.AsType[env.AggregateError](err); ok {
		errs = many.Errors
	}
	for _, err := range errs {
		var without env.VarIsNotSetError
		var unparsed env.ParseError
		switch {
		case err == nil:
		case errors.As(err, &without):
			if !slices.Contains(r.wrong, without.Key) { // for example, its file cannot be read
				r.mistake(without.Key, strings.TrimSpace(unset))
			}
		case errors.As(err, &unparsed):
			i := slices.IndexFunc(r.settings, func(s Setting) bool { return s.field == unparsed.Name })
			r.mistake(r.settings[i].Name, kind(unparsed.Type))
		default:
			panic(err) // the struct's tags are wrong, not the settings
		}
	}
}

// kind describes the format of a setting's value.
func kind(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "must be a duration with a unit, like 90s, 5m or 12h"
	case t == reflect.TypeFor[slog.Level]():
		return "must be debug, info, warn or error"
	case t.Kind() == reflect.Bool:
		return "must be true or false"
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		return "must be a whole number"
	case t.Kind() == reflect.Float64:
		return "must be a number"
	}
	return "cannot be read"
}

// Checks are the mistakes that a configuration reports about itself, each beginning with the name of its setting.
type Checks []error

// Require adds the mistake unless the condition holds.
func (c *Checks) Require(condition bool, mistake string) {
	if !condition {
		*c = append(*c, errors.New(mistake))
	}
}

// Valid adds the error about a setting, if there is one.
func (c *Checks) Valid(setting string, err error) {
	if err != nil {
		*c = append(*c, fmt.Errorf("%s %w", setting, err))
	}
}

// check adds the mistakes that the target itself reports. It skips errors about settings already reported.
func (r *reader) check(mistakes []error) {
	reported := slices.Clone(r.wrong)
	for _, err := range mistakes {
		words := strings.FieldsFunc(err.Error(), func(c rune) bool { return !partOfName(c) })
		if !slices.ContainsFunc(words, func(word string) bool { return slices.Contains(reported, word) }) {
			r.mistakes = append(r.mistakes, err.Error())
		}
	}
}

func partOfName(c rune) bool { return c == '_' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }

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
