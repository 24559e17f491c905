package programmes

import (
	"github.com/almonerhq/almoner/resourceapi/internal/invalid"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/resourceapi/internal/strictjson"
)

// readDetails reads the body of POST: name and, optionally, summary, status (default draft), startsOn and endsOn.
func readDetails(o strictjson.Object) (programme.Details, error) {
	problems := unknownMembers(
		o,
		programme.FieldName,
		programme.FieldSummary,
		programme.FieldStatus,
		programme.FieldStartsOn,
		programme.FieldEndsOn,
		programme.FieldExternalID,
	)
	details := programme.Details{Status: programme.Draft}
	if name := readText(o, programme.FieldName, problems); name != nil {
		details.Name = *name
	}
	if summary := readText(o, programme.FieldSummary, problems); summary != nil {
		details.Summary = *summary
	}
	if status := readText(o, programme.FieldStatus, problems); status != nil {
		details.Status = programme.Status(*status)
	}
	if change := readDate(o, programme.FieldStartsOn, problems); change != nil {
		details.StartsOn = change.Day
	}
	if change := readDate(o, programme.FieldEndsOn, problems); change != nil {
		details.EndsOn = change.Day
	}
	if id := readExternalID(o, problems); id != nil {
		details.ExternalID = *id
	}
	return details, problems.Join(details.Check())
}

// readChange reads the body of PATCH. Omitted members stay unchanged; null removes a date.
func readChange(o strictjson.Object) (programme.Change, error) {
	problems := unknownMembers(
		o,
		programme.FieldName,
		programme.FieldSummary,
		programme.FieldStatus,
		programme.FieldStartsOn,
		programme.FieldEndsOn,
		programme.FieldExternalID,
	)
	if o.Has(programme.FieldStatus) {
		problems[programme.FieldStatus] = "Change the status with a transition: POST to …/transitions."
	}
	change := programme.Change{
		Name:     readText(o, programme.FieldName, problems),
		Summary:  readText(o, programme.FieldSummary, problems),
		StartsOn: readDate(o, programme.FieldStartsOn, problems),
		EndsOn:   readDate(o, programme.FieldEndsOn, problems),

		ExternalID: readExternalID(o, problems),
	}
	return change, problems.Join(change.Check())
}

// readMove reads the body of POST …/transitions.
func readMove(o strictjson.Object) (programme.Status, error) {
	problems := unknownMembers(o, "to")
	text, isText := o.Text("to")
	status, known := programme.ParseStatus(text)
	if !isText || !known {
		problems["to"] = programme.StatusMessage
	}
	return status, problems.OrNil()
}

func unknownMembers(o strictjson.Object, known ...string) invalid.Fields {
	return strictjson.UnknownMembers(o, known...)
}

func readText(o strictjson.Object, field string, problems invalid.Fields) *string {
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
func readExternalID(o strictjson.Object, problems invalid.Fields) *string {
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

func readDate(o strictjson.Object, field string, problems invalid.Fields) *programme.DateChange {
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
