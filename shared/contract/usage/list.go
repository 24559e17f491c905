package usage

import (
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/rest"
)

// Days of usage (contract, section 5b).
const (
	KeptDays  = 92 // how long a row is kept after its day, and how many days apart those of a list may be
	ShownDays = 30 // of a list for which no days are named, of a page and of an overview, with today
)

// Days are the days of a list, midnights in UTC. Both are included.
type Days struct{ From, To time.Time }

// ReadDays reads the query parameters from and to, which are days (YYYY-MM-DD) at most 92 apart. Without to, the last
// day is that of now; without from, the list has 30 days. The error is a rest.Problems.
func ReadDays(raw string, now time.Time) (Days, error) {
	p := rest.ReadParameters(raw, "from", "to")
	read := func(name string, missing time.Time) time.Time {
		text, given := p.Text(name)
		if !given {
			return missing
		}
		day, err := time.Parse(time.DateOnly, text)
		if err != nil || day.Year() < 1 {
			p.Problems.Note(name, "Must be a day: YYYY-MM-DD.")
		}
		return day
	}
	to := read("to", Day(now))
	from := read("from", to.AddDate(0, 0, 1-ShownDays))
	if from.Year() < 1 { // there is no earlier day in Postgres
		from = to
	}
	switch {
	case len(p.Problems) > 0:
	case from.After(to):
		p.Problems.Note("from", "Must not be after to.")
	case to.Sub(from) > KeptDays*24*time.Hour:
		p.Problems.Note("from", "Must be at most "+strconv.Itoa(KeptDays)+" days before to.")
	}
	return Days{from, to}, p.Problems.OrNil()
}

// A Record is a Row as the API shows it.
type Record struct {
	Day          string    `json:"day"`
	CredentialID uuid.UUID `json:"credentialId"`
	Kind         string    `json:"kind"`
	Operation    string    `json:"operation"`
	Service      string    `json:"service,omitempty"` // name of the client that introspected the credential
	Requests     int64     `json:"requests"`
	Refused      int64     `json:"refused"`
	Records      int64     `json:"records"`
}

// Record returns the row as the API shows it.
func (r Row) Record() Record {
	return Record{
		Day:          r.Day.Format(time.DateOnly),
		CredentialID: r.CredentialID,
		Kind:         r.Kind,
		Operation:    r.Operation,
		Service:      r.Service,
		Requests:     r.Requests,
		Refused:      r.Refused,
		Records:      r.Records,
	}
}
