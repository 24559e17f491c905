package engage

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/rest"
)

// validForm is a form with one field and without problems.
func validForm() Form {
	return Form{
		Title:           "Volunteer with us",
		Fields:          []Field{{Name: "name", Label: "Your name", Type: Text}},
		AllowedOrigins:  []string{"https://www.example.org"},
		RetentionMonths: DefaultRetentionMonths,
	}
}

// refused returns the names of the members that a check refused, with the messages.
func refused(t *testing.T, err error) string {
	t.Helper()
	problems, ok := errors.AsType[rest.Problems](err)
	if err != nil && (!ok || len(problems) == 0) {
		t.Errorf("%v, want rest.Problems", err)
	}
	return strings.Join(problems.Lines(), " ")
}

const (
	hiddenText = "Must be a single line without control characters or invisible characters."
	badMonths  = "retentionMonths: Must be an integer from 1 to 120."
	badOrigin  = "Must be an origin, such as https://www.example.org: a scheme, a host in lower case, and the port " +
		"if it is not the default one. No path and no trailing slash."
)

// The rules for what a workspace can change hold for a new form too.
func TestCheck_RefusesMemberOfFormAndOfChange(t *testing.T) {
	times := strings.Repeat
	title := func(text string) Change { return Change{Title: &text} }
	introduction := func(text string) Change { return Change{Introduction: &text} }
	origins := func(all ...string) Change { return Change{AllowedOrigins: &all} }
	for _, c := range []struct {
		change  Change
		refused string
	}{
		{Change{}, ""},
		{title(times("é", 200)), ""},
		{title(times("é", 201)), "title: Must have at most 200 characters."},
		{title(""), "title: Must not be empty."},
		{title("Help "), "title: Must not begin or end with a space."},
		{title("Help\nus"), "title: Must be one line without control characters."},
		{title("\u0301"), "title: Must contain a visible character."},
		{title("He\u200blp"), "title: " + hiddenText},
		{introduction(times("é", 2000)), ""},
		{introduction(times("é", 2001)), "introduction: Must have at most 2000 characters."},
		{introduction("Help.\n \n\nSoon."), ""},
		{introduction("Help.\nSo\u202eon."), "introduction: A line is not valid: " + hiddenText},
		{Change{ThankYou: new("Thank\u202e you.")}, "thankYou: A line is not valid: " + hiddenText},
		{Change{RetentionMonths: new(0)}, badMonths},
		{Change{RetentionMonths: new(1)}, ""},
		{Change{RetentionMonths: new(120)}, ""},
		{Change{RetentionMonths: new(121)}, badMonths},
		{origins(slices.Repeat([]string{"https://a.example"}, 20)...), ""},
		{origins(slices.Repeat([]string{"https://a.example"}, 21)...), "allowedOrigins: Must have at most 20 origins."},
		{origins("https://a.example", "https://a.example/"), "allowedOrigins[1]: " + badOrigin},
		{Change{Title: new(""), RetentionMonths: new(0)}, badMonths + " title: Must not be empty."},
	} {
		ofForm := c.change.Apply(validForm()).Check()
		if got, own := refused(t, c.change.Check()), refused(t, ofForm); got != c.refused || own != c.refused {
			t.Errorf("of the change: %q, of the form: %q, want %q", got, own, c.refused)
		}
	}
}

// Each row is the fields of a form, and the refusal (E1).
func TestE1_FormHasFieldsOfKnownTypesWithUniqueNames(t *testing.T) {
	times := strings.Repeat
	named := func(name string) Field { return Field{Name: name, Label: "A question", Type: Text} }
	labelled := func(kind Type, label string) Field { return Field{Name: "a", Label: label, Type: kind} }
	choice := func(kind Type, options ...string) Field {
		return Field{Name: "a", Label: "A question", Type: kind, Options: options}
	}
	many := func(n int) (fields []Field) {
		for i := range n {
			fields = append(fields, named(fmt.Sprintf("a%d", i)))
		}
		return fields
	}
	hundred := make([]string, MaxOptions)
	for i := range hundred {
		hundred[i] = fmt.Sprint(i)
	}
	const badName = "fields[0].name: Must start with a letter and have only letters, digits, hyphens and " +
		"underscores, at most 64 characters."
	const badCount = "fields: A form must have 1 to 50 fields."
	for _, c := range []struct {
		fields  []Field
		refused string
	}{
		{nil, badCount},
		{many(50), ""},
		{many(51), badCount},
		{[]Field{named("a"), named("b"), named("a")}, "fields[2].name: Another field has this name."},
		{[]Field{named("a" + times("_", 63))}, ""},
		{[]Field{named("a" + times("_", 64))}, badName},
		{[]Field{named("1st")}, badName},
		{[]Field{labelled(Text, times("é", 200))}, ""},
		{[]Field{labelled(Text, times("é", 201))}, "fields[0].label: Must have at most 200 characters."},
		{[]Field{labelled(Consent, times("é", 2000))}, ""},
		{[]Field{labelled(Consent, times("é", 2001))}, "fields[0].label: Must have at most 2000 characters."},
		{[]Field{labelled(Date, "")}, "fields[0].label: Must not be empty."},
		{[]Field{labelled("file", "A file")}, "fields[0].type: Must be text, textarea, email, phone, number, date, " +
			"select, multiselect or consent."},
		{[]Field{choice(Text, "one")}, "fields[0].options: Only select and multiselect fields can have options."},
		{[]Field{choice(Select)}, "fields[0].options: Must have 1 to 100 options."},
		{[]Field{choice(Select, hundred...)}, ""},
		{[]Field{choice(Select, append(hundred, "one more")...)}, "fields[0].options: Must have 1 to 100 options."},
		{[]Field{choice(Select, "one", times("é", 200))}, ""},
		{[]Field{choice(Select, "one", times("é", 201))},
			"fields[0].options: Option 2: Must have at most 200 characters."},
		{[]Field{choice(Multiselect, "one", "two", "one")}, "fields[0].options: Option 3 is a duplicate."},
	} {
		form := validForm()
		form.Fields = c.fields
		if got := refused(t, form.Check()); got != c.refused {
			t.Errorf("%d fields, the first %+v: %q, want %q", len(c.fields), c.fields, got, c.refused)
		}
	}
	all := everyType()
	all.Title, all.RetentionMonths = "All types", 1
	if got := refused(t, all.Check()); got != "" {
		t.Errorf("a type is refused: %s", got)
	}
}

// An origin is spelled as browsers send it (RFC 6454, section 6.2), and compared byte by byte.
func TestCheck_AcceptsOnlySerializedOrigins(t *testing.T) {
	longest := "https://" + strings.Repeat("a", maxOrigin-len("https://"))
	accepted := []string{
		"https://www.example.org", "http://localhost", "http://localhost:8080", "http://localhost:443",
		"https://www.example.org:80", "https://a-b.example:65535", "https://[2001:db8::1]:8443", longest,
	}
	refused := []string{
		longest + "a", "", "*", "null", "www.example.org", "ftp://www.example.org", "https://www.example.org:443",
		"http://localhost:80", "https://www.example.org:65536", "https://www.example.org:08443",
		"https://www.example.org:", "https://www.example.org/", "https://www.example.org?a",
		"https://ada@www.example.org", "https://WWW.example.org", "HTTPS://www.example.org", "https://*.example.org",
		"https://www.example.org;", "https://bücher.example", "https://-a.example", "https://", "https://a b.example",
		"https://a.example,https://b.example", "'unsafe-inline'", "javascript:", "data:", "https://a.example\r\nX: y",
	}
	for _, origin := range append(accepted, refused...) {
		form := validForm()
		form.AllowedOrigins = []string{origin}
		if err := form.Check(); (err == nil) != slices.Contains(accepted, origin) {
			t.Errorf("%q: %v", origin, err)
		}
		if !form.Allows(origin) || form.Allows(origin+"/") {
			t.Errorf("%q allows another origin", origin)
		}
	}
}

func TestDifferences_NamesEachChangedMember(t *testing.T) {
	for want, change := range map[string]Change{
		"":                      {},
		"title":                 {Title: new("Lend a hand")},
		"introduction":          {Introduction: new("Hello.")},
		"thankYou":              {ThankYou: new("Thanks.")},
		"lang":                  {Lang: new("cy")},
		"allowedOrigins":        {AllowedOrigins: new([]string{})},
		"enabled":               {Enabled: new(true)},
		"retentionMonths":       {RetentionMonths: new(1)},
		"title retentionMonths": {RetentionMonths: new(1), Title: new("Lend a hand")},
	} {
		form := validForm()
		if got := strings.Join(form.Differences(change.Apply(form)), " "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A closed form, and one whose workspace has the module turned off, is not visible to the public.
func TestOpen_RequiresEnabledFormAndModule(t *testing.T) {
	for i, state := range []FormState{
		{Form: Form{Enabled: true}, ModuleEnabled: true}, {ModuleEnabled: true}, {Form: Form{Enabled: true}}, {},
	} {
		if open := state.Open(); open != (i == 0) {
			t.Errorf("%t %t: open %t", state.Enabled, state.ModuleEnabled, open)
		}
	}
}
