package envconf

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
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
	var many env.AggregateError
	errs := []error{err}
	if errors.As(err, &many) {
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
