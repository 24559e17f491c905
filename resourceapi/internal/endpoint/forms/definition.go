package forms

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
)

// formMembers are the members of a form in a request.
var formMembers = []string{
	"title", "introduction", "thankYou", "lang", "fields", "allowedOrigins", "enabled", "retentionMonths",
}

// ReadForm reads the definition of a form in JSON. It applies the rules of POST. The error is an *apierr.Error or
// rest.Problems.
func ReadForm(content []byte) (engage.Form, error) {
	object, err := rest.ParseObject(content)
	if err != nil {
		return engage.Form{}, err
	}
	return readForm(object)
}

// readForm reads the body of POST. enabled defaults to true, lang to engage.DefaultLanguage, retentionMonths to 24, and
// introduction and thankYou to "". The error is a rest.Problems.
func readForm(object rest.Object) (engage.Form, error) {
	problems := rest.UnknownMembers(object, formMembers...)
	enabled := object.Flag("enabled", problems)
	definition, err := readDefinition(object, problems)
	return engage.Form{Definition: definition, Enabled: enabled == nil || *enabled}, err
}

// readRetention returns nil if object has no member "retentionMonths", and 0, which is not valid, if the member is not
// an integer.
func readRetention(object rest.Object) *int {
	if !object.Has("retentionMonths") {
		return nil
	}
	months, err := strconv.Atoi(string(object["retentionMonths"]))
	if err != nil {
		months = 0
	}
	return &months
}

func readDefinition(object rest.Object, problems rest.Problems) (engage.Definition, error) {
	d := engage.Definition{AllowedOrigins: []string{}, RetentionMonths: engage.DefaultRetentionMonths}
	if months := readRetention(object); months != nil {
		d.RetentionMonths = *months
	}
	title, isText := object.Text("title")
	if d.Title = title; !isText {
		problems["title"] = "Must be a string."
	}
	d.Introduction = orElse(readText(object, "introduction", problems), "")
	d.ThankYou = orElse(readText(object, "thankYou", problems), "")
	d.Lang = orElse(readLang(object, problems), engage.DefaultLanguage)
	if !readTexts(object, "allowedOrigins", &d.AllowedOrigins) {
		problems["allowedOrigins"] = "Must be an array of strings. If the array is empty, other websites cannot " +
			"use the form."
	}
	var elements []json.RawMessage
	if object.Null("fields") || json.Unmarshal(object["fields"], &elements) != nil {
		problems["fields"] = "Must be an array of fields."
		return d, problems
	}
	if len(elements) > engage.MaxFields {
		elements = elements[:engage.MaxFields+1] // one more than allowed, so that Check reports too many
	}
	for i, element := range elements {
		d.Fields = append(d.Fields, readField(fmt.Sprintf("fields[%d]", i), element, problems))
	}
	return d, problems.Join(d.Check())
}

// readText returns nil if object has no such member.
func readText(object rest.Object, name string, problems rest.Problems) *string {
	if !object.Has(name) {
		return nil
	}
	text, isText := object.Text(name)
	if !isText {
		problems[name] = "Must be a string."
	}
	text = strings.ReplaceAll(text, "\r\n", "\n")
	return &text
}

// readLang returns nil if object has no member "lang".
func readLang(object rest.Object, problems rest.Problems) *string {
	lang := readText(object, "lang", problems)
	if lang != nil && !engage.KnownLanguage(*lang) {
		problems["lang"] = "Must be one of these languages: " + strings.Join(engage.Languages(), ", ") + "."
	}
	return lang
}

func orElse(text *string, otherwise string) string {
	if text == nil {
		return otherwise
	}
	return *text
}

// readChange reads the body of PATCH, whose members are all optional. The error is a rest.Problems.
func readChange(object rest.Object) (engage.Change, error) {
	var change engage.Change
	problems := rest.UnknownMembers(object, formMembers...)
	if object.Has("fields") {
		problems["fields"] = "The fields of a form cannot change. Create another form, and close this one with " +
			"enabled: false."
	}
	change.Title = readText(object, "title", problems)
	change.Introduction = readText(object, "introduction", problems)
	change.ThankYou = readText(object, "thankYou", problems)
	change.Lang = readLang(object, problems)
	if object.Has("allowedOrigins") {
		origins := []string{}
		if change.AllowedOrigins = &origins; !readTexts(object, "allowedOrigins", &origins) {
			problems["allowedOrigins"] = "Must be an array of strings. If the array is empty, other websites " +
				"cannot use the form."
		}
	}
	change.Enabled = object.Flag("enabled", problems)
	change.RetentionMonths = readRetention(object)
	return change, problems.Join(change.Check())
}

// readField reads name, label, type, required (default false) and options.
func readField(at string, element json.RawMessage, problems rest.Problems) engage.Field {
	object, err := rest.ParseObject(element)
	if err != nil {
		problems[at] = "Must be an object with name, label, type, required and, for select and multiselect, options."
		return engage.Field{}
	}
	for name, message := range rest.UnknownMembers(object, "name", "label", "type", "required", "options") {
		problems[at+"."+name] = message
	}
	var f engage.Field
	text := func(key string) string {
		value, isText := object.Text(key)
		if !isText {
			problems[at+"."+key] = "Must be a string."
		}
		return value
	}
	f.Name, f.Label, f.Type = text("name"), text("label"), engage.Type(text("type"))
	if object.Has("required") {
		switch string(object["required"]) {
		case "true":
			f.Required = true
		case "false":
		default:
			problems[at+".required"] = "Must be true or false."
		}
	}
	if object.Has("options") && !readTexts(object, "options", &f.Options) {
		problems[at+".options"] = "Must be an array of strings."
	}
	return f
}

// readTexts reads a list of strings. It returns false for null or a null element.
func readTexts(object rest.Object, key string, into *[]string) bool {
	var elements []*string
	if object.Null(key) || json.Unmarshal(object[key], &elements) != nil {
		return false
	}
	for _, element := range elements {
		if element == nil {
			return false
		}
		*into = append(*into, *element)
	}
	return true
}
