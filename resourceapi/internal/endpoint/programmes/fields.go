package programmes

import (
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

// members are the members of a programme in a request.
var members = []string{
	programme.FieldName,
	programme.FieldSummary,
	programme.FieldStatus,
	programme.FieldStartsOn,
	programme.FieldEndsOn,
	programme.FieldExternalID,
}

// readMembers reads the members other than status. Omitted ones are nil; null removes a date or an external id.
func readMembers(o rest.Object, problems rest.Problems) programme.Change {
	return programme.Change{
		Name:       readText(o, programme.FieldName, problems),
		Summary:    readText(o, programme.FieldSummary, problems),
		StartsOn:   readDate(o, programme.FieldStartsOn, problems),
		EndsOn:     readDate(o, programme.FieldEndsOn, problems),
		ExternalID: readExternalID(o, problems),
	}
}

// readDetails reads the body of POST: name and, optionally, the other members. The default of status is draft.
func readDetails(o rest.Object) (programme.Details, error) {
	problems := rest.UnknownMembers(o, members...)
	p, _ := readMembers(o, problems).Apply(programme.Programme{}) // Details.Check finds its problems
	details := programme.Details{
		Name:       p.Name,
		Summary:    p.Summary,
		Status:     programme.Draft,
		StartsOn:   p.StartsOn,
		EndsOn:     p.EndsOn,
		ExternalID: p.ExternalID,
	}
	if status := readText(o, programme.FieldStatus, problems); status != nil {
		details.Status = programme.Status(*status)
	}
	return details, problems.Join(details.Check())
}

// readChange reads the body of PATCH.
func readChange(o rest.Object) (programme.Change, error) {
	problems := rest.UnknownMembers(o, members...)
	if o.Has(programme.FieldStatus) {
		problems[programme.FieldStatus] = "Change the status with a transition: POST to …/transitions."
	}
	change := readMembers(o, problems)
	return change, problems.Join(change.Check())
}

func readTo(o rest.Object, problems rest.Problems) programme.Status {
	text, isText := o.Text("to")
	status, known := programme.ParseStatus(text)
	if !isText || !known {
		problems["to"] = programme.StatusMessage
	}
	return status
}

func readText(o rest.Object, field string, problems rest.Problems) *string {
	if !o.Has(field) {
		return nil
	}
	text, isText := o.Text(field)
	if !isText {
		problems[field] = "Must be a string."
		return nil
	}
	return &text
}

// readExternalID returns nil if the member is missing, and "" for null, which means none.
func readExternalID(o rest.Object, problems rest.Problems) *string {
	if o.Null(programme.FieldExternalID) {
		return new(string)
	}
	id := readText(o, programme.FieldExternalID, problems)
	if id != nil {
		if message := programme.CheckExternalID(*id); message != "" {
			problems[programme.FieldExternalID] = message
		}
	}
	return id
}

func readDate(o rest.Object, field string, problems rest.Problems) *programme.DateChange {
	if !o.Has(field) {
		return nil
	}
	if o.Null(field) {
		return &programme.DateChange{}
	}
	text, isText := o.Text(field)
	day, err := programme.ParseDate(text)
	if !isText || err != nil {
		problems[field] = programme.DateMessage
		return nil
	}
	return &programme.DateChange{Day: &day}
}

// readUpsert reads the members of POST. For an existing programme they are a change: omitted ones stay unchanged.
func readUpsert(o rest.Object) (programme.Upsert, error) {
	details, err := readDetails(o)
	if err != nil {
		return programme.Upsert{}, err
	}
	change := readMembers(o, rest.Problems{}) // readDetails has found the problems
	change.ExternalID = nil                   // the programme is found by it
	wanted := programme.Upsert{New: details, Change: change}
	if o.Has(programme.FieldStatus) {
		wanted.Status = &details.Status
	}
	return wanted, nil
}
