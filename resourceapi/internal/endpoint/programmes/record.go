package programmes

import (
	"time"

	"github.com/almonerhq/almoner/shared/jsontime"
	"github.com/almonerhq/almoner/shared/web"

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
	b = jsontime.Append(b, p.CreatedAt)
	b = append(b, `","updatedAt":"`...)
	b = jsontime.Append(b, p.UpdatedAt)
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
