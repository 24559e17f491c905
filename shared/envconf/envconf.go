// Package envconf answers: what is this process configured to do?
//
// A struct with env tags (caarlos0/env) is filled from the environment, and from the file that
// ALMONER_CONFIG_FILE names (KEY=VALUE lines; the environment wins). A secret may come from a file: for NAME,
// NAME_FILE names it. Every mistake is reported at once, each in a line of its own, and no value is ever quoted.
package envconf

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/caarlos0/env/v11"
	"github.com/joho/godotenv"
)

const prefix = "ALMONER_"

// Load fills target, a pointer to a struct. Its Check method, if it has one, reports further mistakes.
func Load(target any, environ []string) error {
	values, mistakes := gather(environ)
	err := env.ParseWithOptions(target, env.Options{Environment: values})
	var many env.AggregateError
	if errors.As(err, &many) {
		for _, one := range many.Errors {
			mistakes = append(mistakes, plain(one))
		}
	} else if err != nil {
		mistakes = append(mistakes, plain(err))
	}
	if checker, ok := target.(interface{ Check() []error }); ok && len(mistakes) == 0 {
		mistakes = append(mistakes, checker.Check()...)
	}
	return errors.Join(mistakes...)
}

func gather(environ []string) (map[string]string, []error) {
	values := map[string]string{}
	var mistakes []error
	fromEnvironment := map[string]string{}
	for _, pair := range environ {
		if name, value, ok := strings.Cut(pair, "="); ok && strings.HasPrefix(name, prefix) {
			fromEnvironment[name] = value
		}
	}
	if file := fromEnvironment[prefix+"CONFIG_FILE"]; file != "" {
		fromFile, err := godotenv.Read(file)
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("%sCONFIG_FILE: the file cannot be read as KEY=VALUE lines", prefix))
		}
		for name, value := range fromFile {
			values[name] = value
		}
	}
	for name, value := range fromEnvironment {
		values[name] = value
	}
	for name, path := range values {
		setting, isFile := strings.CutSuffix(name, "_FILE")
		if !isFile || setting == prefix+"CONFIG" || path == "" {
			continue
		}
		if values[setting] != "" {
			mistakes = append(mistakes, fmt.Errorf("%s and %s are both set: keep one", setting, name))
			continue
		}
		content, err := os.ReadFile(path)
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("%s: the file cannot be read", name))
			continue
		}
		values[setting] = strings.TrimSpace(string(content))
	}
	return values, mistakes
}

// plain turns the library's errors into words that name the setting and quote no value.
func plain(err error) error {
	var unset env.VarIsNotSetError
	var empty env.EmptyVarError
	var parse env.ParseError
	switch {
	case errors.As(err, &unset):
		return fmt.Errorf("%s is not set", unset.Key)
	case errors.As(err, &empty):
		return fmt.Errorf("%s is empty", empty.Key)
	case errors.As(err, &parse):
		return fmt.Errorf("the setting behind %s is not a valid %s", parse.Name, parse.Type)
	}
	return errors.New("the configuration cannot be read")
}

// A Setting is one documented setting of a configuration struct.
type Setting struct{ Name, Default, Required, Doc string }

// Describe lists the settings of a configuration struct from its env and doc tags, for --help and the documentation.
func Describe(target any) []Setting {
	var out []Setting
	structType := reflect.TypeOf(target)
	if structType.Kind() == reflect.Pointer {
		structType = structType.Elem()
	}
	for field := range structType.Fields() {
		tag := field.Tag.Get("env")
		if tag == "" {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		required := "no"
		if strings.Contains(options, "required") || strings.Contains(options, "notEmpty") {
			required = "yes"
		}
		out = append(out, Setting{name, field.Tag.Get("envDefault"), required, field.Tag.Get("doc")})
	}
	return out
}

// Print lists what is in force as NAME=value lines; secrets print as [redacted] by their type.
func Print(target any) string {
	var out strings.Builder
	value := reflect.Indirect(reflect.ValueOf(target))
	for i := range value.NumField() {
		name, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("env"), ",")
		if name != "" {
			fmt.Fprintf(&out, "%s=%v\n", name, value.Field(i).Interface())
		}
	}
	return out.String()
}
