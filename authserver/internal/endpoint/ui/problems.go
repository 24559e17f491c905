package ui

// Problems are the errors of a form, in the order of its fields. The head of the page lists them with links to the
// fields, and each is also at its field.
type Problems []Problem

// A Problem is the error of one field of a form.
type Problem struct {
	Field string // its name in the form
	At    string // its element id
	Label string // its name on the page
	Text  string
}

// ProblemAt returns the error of a field with a name in the form, an element id and a label.
func ProblemAt(field, at, label, text string) Problem {
	return Problem{
		Field: field,
		At:    at,
		Label: label,
		Text:  text,
	}
}

// Of returns the error of a field, or "".
func (p Problems) Of(field string) string {
	for _, one := range p {
		if one.Field == field {
			return one.Text
		}
	}
	return ""
}

// First reports whether the first error belongs to the field, which then gets the focus.
func (p Problems) First(field string) bool { return len(p) > 0 && p[0].Field == field }

// Refuse makes the page say that a form was refused, and why.
func (f *Frame) Refuse(what string, problems ...Problem) { f.Problem, f.Problems = what, problems }
