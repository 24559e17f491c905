package programme

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/rest"
)

// FieldExternalID is the name of the id that a programme has in another system.
const FieldExternalID = "externalId"

// Limits of external ids and batches.
const (
	MaxExternalID = 200 // characters
	MaxBatch      = 500 // items
)

// CheckExternalID returns a message about an external id that is not valid, or "".
func CheckExternalID(id string) string {
	switch {
	case id == "" || !utf8.ValidString(id) || utf8.RuneCountInString(id) > MaxExternalID:
		return fmt.Sprintf("Must have 1 to %d characters.", MaxExternalID)
	case strings.ContainsFunc(id, unicode.IsControl):
		return "Must not contain control characters."
	case id == "." || id == "..": // a URL with it as a segment means another path (RFC 3986, section 5.2.4)
		return "Must not be . or .. alone."
	}
	return ""
}

// An Upsert creates a programme, or changes the one that has its external id.
type Upsert struct {
	New    Details // for a new programme; valid
	Change Change  // for an existing one
	Status *Status // for an existing one, if it was given; the change is a transition (P2)
	// Check is called with the version of the programme, 0 for a new one, before anything is changed. nil allows all.
	Check func(version int) error
}

// A Move is a transition of one programme (P2).
type Move struct {
	ID uuid.UUID
	To Status
}

// An Upserted is the result of an Upsert or a Move: a programme, or an error if nothing was written.
type Upserted struct {
	Programme Programme
	Created   bool
	Err       error
}

// Apply returns the result for the programme that has the external id, or for none if current is nil. The times and
// the version of the result are not set.
func (u Upsert) Apply(current *Programme, id uuid.UUID) Upserted {
	version := 0
	if current != nil {
		version = current.Version
	}
	if u.Check != nil {
		if err := u.Check(version); err != nil {
			return Upserted{Err: err}
		}
	}
	if current == nil {
		return Upserted{Created: true, Programme: New(id, u.New)}
	}
	p, err := u.Change.Apply(*current)
	if err != nil {
		return Upserted{Err: err}
	}
	if u.Status != nil && *u.Status != p.Status {
		if !p.Status.CanBecome(*u.Status) {
			return Upserted{Err: ErrTransition}
		}
		p.Status = *u.Status
	}
	return Upserted{Programme: p}
}

// ImportUpserts returns what the rows of a file do if the file has the column externalId: a row with a known one
// changes its programme in the columns that the file has. ok is false if it has no such column.
func ImportUpserts(text string, rows []Details) (all []Upsert, ok bool) {
	_, columns, err := openImport(text)
	if err != nil || !slices.Contains(columns, FieldExternalID) {
		return nil, false
	}
	for _, row := range rows {
		one := Upsert{New: row, Change: Change{Name: &row.Name}}
		for _, column := range columns {
			switch column {
			case FieldSummary:
				one.Change.Summary = &row.Summary
			case FieldStartsOn:
				one.Change.StartsOn = &DateChange{row.StartsOn}
			case FieldEndsOn:
				one.Change.EndsOn = &DateChange{row.EndsOn}
			case FieldStatus:
				one.Status = &row.Status
			}
		}
		all = append(all, one)
	}
	return all, true
}

// RowErrors returns the errors of the rows of an import whose results have one.
func RowErrors(rows []Details, results []Upserted) []RowError {
	var wrong []RowError
	for i, one := range results {
		var problems rest.Problems
		switch {
		case errors.As(one.Err, &problems):
			for _, field := range slices.Sorted(maps.Keys(problems)) {
				wrong = append(wrong, RowError{Row: rows[i].Row, Field: field, Message: problems[field]})
			}
		case one.Err != nil:
			wrong = append(wrong, RowError{
				Row:     rows[i].Row,
				Field:   FieldStatus,
				Message: "The programme with this externalId cannot change from its current status to this status.",
			})
		}
	}
	return wrong[:min(len(wrong), MaxImportErrors)]
}
