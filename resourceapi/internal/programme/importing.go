package programme

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/page/spreadsheet"
	"github.com/almonerhq/almoner/shared/rest"
)

// Limits of an import.
const (
	MaxImportRows   = 10_000
	MaxImportErrors = 1_000 // in the result; further errors are dropped
)

// An ImportStatus is the state of an import.
type ImportStatus string

// An import starts as accepted. Then either all of its rows became programmes, or none did.
const (
	ImportAccepted  ImportStatus = "accepted"
	ImportProcessed ImportStatus = "processed"
	ImportRejected  ImportStatus = "rejected"
)

// An Import is the result of a file of programmes.
type Import struct {
	ID       uuid.UUID    `json:"id"`
	Status   ImportStatus `json:"status"`
	Imported int          `json:"imported"`
	Errors   []RowError   `json:"errors"`
}

// A RowError says what is wrong in a row. Rows are numbered as in a spreadsheet: the header is row 1, and empty rows
// count.
type RowError struct {
	Row     int    `json:"row"`
	Field   string `json:"field"` // empty if the error concerns the whole row
	Message string `json:"message"`
}

// CheckImport checks what must hold before ReadImport: the text is UTF-8 and has a valid header. The rows are not
// checked. It returns rest.Problems.
func CheckImport(text string) error {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return rest.Problems{"file": "Must be text in UTF-8."}
	}
	_, _, err := openImport(text)
	return err
}

// ReadImport returns the programmes of the rows or the errors in the rows, never both (P5).
func ReadImport(text string) ([]Details, []RowError) {
	reader, columns, err := openImport(text)
	if err != nil {
		return nil, []RowError{{Row: 1, Message: "The header is not valid."}}
	}
	var rows []Details
	var wrong []RowError
	for len(wrong) < MaxImportErrors {
		record, err := reader.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if message := endOfImport(err, len(rows)); message != "" {
			wrong = append(wrong, RowError{Row: reader.row, Message: message})
			break
		}
		details, problems := readRow(record, columns)
		details.Row = reader.row
		rows = append(rows, details)
		for _, field := range slices.Sorted(maps.Keys(problems)) {
			wrong = append(wrong, RowError{Row: reader.row, Field: field, Message: problems[field]})
		}
	}
	if len(wrong) > 0 {
		return nil, wrong[:min(len(wrong), MaxImportErrors)]
	}
	return rows, nil
}

// endOfImport returns the message for a row with which reading ends, or "". rows is how many rows were read before.
func endOfImport(err error, rows int) string {
	switch {
	case errors.Is(err, errTooManyCells):
		return fmt.Sprintf("A row can have at most %d values. The rest of the file was not read.", maxCells)
	case errors.Is(err, errLongRow):
		return fmt.Sprintf("A row can have at most %d KiB. Check its quotes. The rest of the file was not read.",
			maxRow>>10)
	case rows == MaxImportRows:
		return fmt.Sprintf("An import can have at most %d rows.", MaxImportRows)
	case err != nil: // the reader is out of step, so that later rows would be misread
		return "The row is not valid CSV (RFC 4180). Check its quotes."
	}
	return ""
}

// openImport reads the header and returns the reader of the rows and the field of each column.
func openImport(text string) (*rowReader, []string, error) {
	text = strings.TrimPrefix(text, spreadsheet.ByteOrderMark)
	// The separator does not matter here: the header ends at the first line end outside of a quoted cell.
	header, _ := measureRow(strings.TrimLeft(text, "\r\n"), ',')
	if len(header) > MaxImportHeader {
		return nil, nil, rest.Problems{"header": fmt.Sprintf("The header can have at most %d bytes.", MaxImportHeader)}
	}
	reader := newRowReader(text, separatorOf(header))
	columns, err := reader.next()
	if err != nil {
		return nil, nil, rest.Problems{"header": "The first line must name the columns: " +
			"name,summary,status,startsOn,endsOn,externalId in any order."}
	}
	columns = withoutEmptyEnd(columns, 0)
	known := []string{FieldName, FieldSummary, FieldStatus, FieldStartsOn, FieldEndsOn, FieldExternalID}
	for i, column := range columns {
		if !slices.Contains(known, column) || slices.Contains(columns[:i], column) {
			return nil, nil, rest.Problems{
				"header": "The columns can only be name,summary,status,startsOn,endsOn,externalId, each once, " +
					"separated by commas, semicolons or tabs.",
			}
		}
	}
	if !slices.Contains(columns, FieldName) {
		return nil, nil, rest.Problems{"header": "The name column is required."}
	}
	return reader, columns, nil
}

func readRow(record, columns []string) (Details, rest.Problems) {
	record = withoutEmptyEnd(record, len(columns))
	if len(record) != len(columns) {
		return Details{}, rest.Problems{
			"": fmt.Sprintf("Values in this row: %d; columns in the header: %d.", len(record), len(columns)),
		}
	}
	details, problems := Details{Status: Draft}, rest.Problems{}
	for i, column := range columns {
		value := record[i]
		switch {
		case column == FieldName:
			details.Name = value
		case column == FieldSummary:
			details.Summary = value
		case value == "": // an empty cell has the default value
		case column == FieldExternalID:
			details.ExternalID = value
		case column == FieldStatus:
			details.Status = Status(value)
		case column == FieldStartsOn, column == FieldEndsOn:
			day, err := ParseDate(value)
			if err != nil {
				problems[column] = DateMessage
			} else if column == FieldStartsOn {
				details.StartsOn = &day
			} else {
				details.EndsOn = &day
			}
		}
	}
	_ = problems.Join(details.Check())
	return details, problems
}

// Bounds of the rows of an import. They are checked before a row is split into cells, because a cell costs the parser
// many times its size.
const (
	MaxImportHeader = 1 << 10 // bytes of the header
	// maxRow is in bytes; the longest valid row, with every character doubled as a quote, is shorter
	maxRow   = 64 << 10
	maxCells = 100 // in a row
)

// Rows that are not split into cells.
var (
	errLongRow      = errors.New("a row of too many bytes")
	errTooManyCells = errors.New("a row of too many cells")
)

// A rowReader reads the rows of a file one at a time. It measures each row before it passes it to the csv.Reader, which
// never gets more than one row.
type rowReader struct {
	comma byte           // between the cells
	rest  string         // not read yet
	row   int            // number of the last row
	text  strings.Reader // of the last row
	cells *csv.Reader    // of text
}

func newRowReader(text string, comma byte) *rowReader {
	r := &rowReader{comma: comma, rest: text}
	r.cells = csv.NewReader(&r.text)
	r.cells.Comma, r.cells.FieldsPerRecord = rune(comma), -1
	return r
}

// next returns the cells of the next row that is not empty, or io.EOF. After any other error, nothing can be read.
func (r *rowReader) next() ([]string, error) {
	for r.rest != "" {
		row, cells := measureRow(r.rest, r.comma)
		r.rest, r.row = r.rest[len(row):], r.row+1
		switch {
		case cells > maxCells:
			return nil, errTooManyCells
		case len(row) > maxRow:
			return nil, errLongRow
		}
		r.text.Reset(row)
		if record, err := r.cells.Read(); !errors.Is(err, io.EOF) {
			return record, err
		}
	}
	return nil, io.EOF
}

// measureRow returns the first row of text, with its line end, and the number of its cells. A line end or a separator
// between quotes belongs to a cell. Up to the first misplaced quote, where csv.Reader stops with an error, it finds
// the same rows as csv.Reader.
func measureRow(text string, comma byte) (row string, cells int) {
	quoted := false
	cells = 1
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == comma:
			cells++
		case c == '\n':
			return text[:i+1], cells
		}
	}
	return text, cells
}

// separatorOf returns the separator that follows the first cell of the header: a comma, or the semicolon or the tab
// that spreadsheets write (contract, section 6a). It is a comma if there is only one cell.
func separatorOf(header string) byte {
	quoted := false
	for i := range len(header) {
		switch c := header[i]; {
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == ';' || c == '\t'):
			return c
		}
	}
	return ','
}

// withoutEmptyEnd returns the cells up to the last one that is not empty, and at least the given number of them.
func withoutEmptyEnd(cells []string, least int) []string {
	for len(cells) > least && cells[len(cells)-1] == "" {
		cells = cells[:len(cells)-1]
	}
	return cells
}

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
