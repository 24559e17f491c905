package engage

import (
	"encoding/json"
	"testing"

	"github.com/almonerhq/almoner/shared/rest"
)

// Each row is the condition of the last field of a form, and the refusal.
func TestCheck_ConditionNamesEarlierFieldAndItsAnswer(t *testing.T) {
	const notEarlier = "fields[4].askIf.field: Must be the name of an earlier field of type select, multiselect or " +
		"consent."
	const noOption = "fields[4].askIf.equals: Must be one of the options of the other field."
	const notTrue = "fields[4].askIf.equals: Must be true, because the other field is a consent."
	for _, c := range []struct {
		condition Condition
		refused   string
	}{
		{Condition{"help", "Driving"}, ""},
		{Condition{"days", "Friday"}, ""},
		{Condition{"news", true}, ""},
		{Condition{"", "Driving"}, notEarlier},
		{Condition{"nothing", "Driving"}, notEarlier},
		{Condition{"name", "Driving"}, notEarlier},
		{Condition{"licence", "B"}, notEarlier}, // itself
		{Condition{"later", "Driving"}, notEarlier},
		{Condition{"help", "driving"}, noOption},
		{Condition{"help", true}, noOption},
		{Condition{"days", nil}, noOption},
		{Condition{"news", "true"}, notTrue},
		{Condition{"news", nil}, notTrue},
	} {
		form := validForm()
		form.Fields = append(form.Fields,
			Field{Name: "help", Label: "Help", Type: Select, Options: []string{"Driving", "Garden"}},
			Field{Name: "days", Label: "Days", Type: Multiselect, Options: []string{"Friday", "Sunday"}},
			Field{Name: "news", Label: "News", Type: Consent},
			Field{Name: "licence", Label: "Licence", Type: Select, Options: []string{"B"}, AskIf: &c.condition},
			Field{Name: "later", Label: "Later", Type: Select, Options: []string{"Driving"}})
		if got := refused(t, form.Check()); got != c.refused {
			t.Errorf("%+v: %q, want %q", c.condition, got, c.refused)
		}
	}
}

// A chain of conditions: the second is met only if the first is.
func TestE8_FieldIsRequiredOnlyIfItIsAsked(t *testing.T) {
	form := Form{Fields: []Field{
		{Name: "days", Type: Multiselect, Options: []string{"Friday", "Sunday"}},
		{Name: "help", Type: Select, Options: []string{"Driving", "Garden"}, Required: true,
			AskIf: &Condition{"days", "Sunday"}},
		{Name: "licence", Type: Text, Required: true, AskIf: &Condition{"help", "Driving"}},
		{Name: "share", Label: "Share my answers.", Type: Consent},
		{Name: "check", Label: "Check my record.", Type: Consent, Required: true, AskIf: &Condition{"share", true}},
	}}
	for _, c := range []struct {
		given    rest.Object
		refused  string
		consents string // names
	}{
		{rest.Object{}, "", "share"},
		{rest.Object{"days": json.RawMessage(`["Friday"]`)}, "", "share"},
		{rest.Object{"days": json.RawMessage(`["Friday","Sunday"]`)}, "help: missing", ""},
		{rest.Object{"days": json.RawMessage(`["Sunday"]`), "help": json.RawMessage(`"Garden"`)}, "", "share"},
		{
			rest.Object{"days": json.RawMessage(`["Sunday"]`), "help": json.RawMessage(`"Driving"`)},
			"licence: missing", "",
		},
		{rest.Object{"help": json.RawMessage(`"Driving"`)}, "", "share"}, // not asked, so it asks nothing either
		{rest.Object{"licence": json.RawMessage(`"AB12"`)}, "", "share"},
		{rest.Object{"share": json.RawMessage(`true`)}, "check: agree", ""},
		{rest.Object{"share": json.RawMessage(`true`), "check": json.RawMessage(`true`)}, "", "share check"},
		{rest.Object{"check": json.RawMessage(`true`)}, "", "share check"},
		{rest.Object{"check": json.RawMessage(`false`)}, "", "share"},
	} {
		answers, consents, err := form.Read(c.given, english)
		if got := refused(t, err); got != c.refused {
			t.Errorf("%s: %q, want %q", c.given, got, c.refused)
		}
		if err != nil {
			continue
		}
		names := ""
		for i, consent := range consents {
			if names += consent.Field; i < len(consents)-1 {
				names += " "
			}
		}
		if names != c.consents {
			t.Errorf("%s: consents %q, want %q", c.given, names, c.consents)
		}
		for name, raw := range c.given { // what was sent is stored, whether it was asked or not
			if _, kept := answers[name]; !kept && string(raw) != "false" {
				t.Errorf("%s: %s is lost", c.given, name)
			}
		}
	}
}
