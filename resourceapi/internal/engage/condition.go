package engage

import (
	"slices"

	"github.com/almonerhq/almoner/shared/rest"
)

// A Condition is met if the answer to an earlier field is Equals or, for a Multiselect, contains it.
type Condition struct {
	Field  string `json:"field"`  // of type Select, Multiselect or Consent
	Equals any    `json:"equals"` // one of its options; true for a Consent
}

// check adds the problems of the condition to problems, with names that begin with at. Only earlier fields are allowed,
// so that there are no cycles.
func (c *Condition) check(at string, earlier []Field, problems rest.Problems) {
	i := slices.IndexFunc(earlier, func(f Field) bool { return f.Name == c.Field })
	if i < 0 || !earlier[i].HasOptions() && earlier[i].Type != Consent {
		problems[at+".field"] = "Must be the name of an earlier field of type select, multiselect or consent."
		return
	}
	option, isOption := c.Equals.(string)
	switch {
	case earlier[i].Type == Consent && c.Equals != true:
		problems[at+".equals"] = "Must be true, because the other field is a consent."
	case earlier[i].HasOptions() && !(isOption && slices.Contains(earlier[i].Options, option)):
		problems[at+".equals"] = "Must be one of the options of the other field."
	}
}

// met reports whether the answer meets the condition. The answer is nil if there is none.
func (c *Condition) met(answer any) bool {
	if chosen, several := answer.([]string); several {
		return slices.ContainsFunc(chosen, func(option string) bool { return option == c.Equals })
	}
	return answer == c.Equals
}

// askedOf reports whether the field is asked: it has no condition, or the field of its condition is asked and its
// answer meets it. asked and answers are those of the earlier fields.
func (f Field) askedOf(asked map[string]bool, answers Answers) bool {
	return f.AskIf == nil || asked[f.AskIf.Field] && f.AskIf.met(answers[f.AskIf.Field])
}
