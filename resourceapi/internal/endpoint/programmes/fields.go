package programmes

import (
	"time"

	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

// appendRecord appends a programme in its API form (contract, section 6): id, name, summary, status, startsOn and
// endsOn (YYYY-MM-DD or null), createdAt and updatedAt (RFC 3339, UTC, with six decimals), and externalId if it
// has one.
//
// It is written by hand because a page has up to 200 records: encoding/json took a quarter of the service's time in
// BenchmarkList, and 2.3 times as long as this. FuzzRecord checks that the output is byte-identical.
func appendRecord(b []byte, p programme.Programme) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, p.ID.String()...)
	b = append(b, `","name":`...)
	b = appendText(b, p.Name)
	b = append(b, `,"summary":`...)
	b = appendText(b, p.Summary)
	b = append(b, `,"status":`...)
	b = appendText(b, string(p.Status))
	b = append(b, `,"startsOn":`...)
	b = appendDay(b, p.StartsOn)
	b = append(b, `,"endsOn":`...)
	b = appendDay(b, p.EndsOn)
	b = append(b, `,"createdAt":"`...)
	b = rest.AppendTime(b, p.CreatedAt)
	b = append(b, `","updatedAt":"`...)
	b = rest.AppendTime(b, p.UpdatedAt)
	b = append(b, '"')
	if p.ExternalID != "" {
		b = append(b, `,"externalId":`...)
		b = appendText(b, p.ExternalID)
	}
	return append(b, '}')
}

func appendDay(b []byte, d *programme.Date) []byte {
	if d == nil {
		return append(b, "null"...)
	}
	b = append(b, '"')
	b = d.Time().AppendFormat(b, time.DateOnly)
	return append(b, '"')
}

// appendText appends printable ASCII directly, which most text is, and leaves other text to package web.
func appendText(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			encoded, _ := web.EncodeJSON(text) // encoding a string cannot fail
			return append(b, encoded...)
		}
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"')
}

// members are the members of a programme in a request.
var members = []string{
	programme.FieldName,
	programme.FieldSummary,
	programme.FieldStatus,
	programme.FieldStartsOn,
	programme.FieldEndsOn,
	programme.FieldExternalID,
}

// readDetails reads the body of POST: name and, optionally, summary, status (default draft), startsOn and endsOn.
func readDetails(o rest.Object) (programme.Details, error) {
	problems := rest.UnknownMembers(o, members...)
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
func readChange(o rest.Object) (programme.Change, error) {
	problems := rest.UnknownMembers(o, members...)
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
func readMove(o rest.Object) (programme.Status, error) {
	problems := rest.UnknownMembers(o, "to")
	to := readTo(o, problems)
	return to, problems.OrNil()
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
	found := rest.Problems{} // every problem was found by readDetails
	wanted := programme.Upsert{New: details, Change: programme.Change{
		Name:     readText(o, programme.FieldName, found),
		Summary:  readText(o, programme.FieldSummary, found),
		StartsOn: readDate(o, programme.FieldStartsOn, found),
		EndsOn:   readDate(o, programme.FieldEndsOn, found),
	}}
	if o.Has(programme.FieldStatus) {
		wanted.Status = &details.Status
	}
	return wanted, nil
}
