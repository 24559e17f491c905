package programme

import (
	"cmp"
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

// ReadImport returns what the rows do or the errors in the rows, never both (P5). byExternalID reports whether the file
// has the column externalId: a row with a known one changes its programme in the columns that the file has. Otherwise
// each row creates a programme.
func ReadImport(text string) (rows []Upsert, byExternalID bool, wrong []RowError) {
	reader, columns, err := openImport(text)
	if err != nil {
		return nil, false, []RowError{{Row: 1, Message: "The header is not valid."}}
	}
	for len(wrong) < MaxImportErrors {
		record, err := reader.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if message := endOfImport(err, len(rows)); message != "" {
			wrong = append(wrong, RowError{Row: reader.row, Message: message})
			break
		}
		one, problems := readRow(record, columns)
		one.Row = reader.row
		rows = append(rows, *one)
		wrong = appendErrors(wrong, reader.row, problems)
	}
	if len(wrong) > 0 {
		return nil, false, wrong[:min(len(wrong), MaxImportErrors)]
	}
	return rows, slices.Contains(columns, FieldExternalID), nil
}

func appendErrors(all []RowError, row int, problems rest.Problems) []RowError {
	for _, field := range slices.Sorted(maps.Keys(problems)) {
		all = append(all, RowError{Row: row, Field: field, Message: problems[field]})
	}
	return all
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
	for i, column := range columns {
		if !slices.Contains(WritableFields, column) || slices.Contains(columns[:i], column) {
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

// readRow returns what a row does. It changes a programme only in the columns of the file. An empty cell has the
// default value.
func readRow(record, columns []string) (*Upsert, rest.Problems) {
	row, problems := &Upsert{New: Details{Status: Draft}}, rest.Problems{}
	record = withoutEmptyEnd(record, len(columns))
	if len(record) != len(columns) {
		problems[""] = fmt.Sprintf("Values in this row: %d; columns in the header: %d.", len(record), len(columns))
		return row, problems
	}
	for i, column := range columns {
		value := record[i]
		switch column {
		case FieldName:
			row.New.Name, row.Change.Name = value, &row.New.Name
		case FieldSummary:
			row.New.Summary, row.Change.Summary = value, &row.New.Summary
		case FieldStatus:
			row.New.Status, row.Status = cmp.Or(Status(value), Draft), &row.New.Status
		case FieldStartsOn:
			row.New.StartsOn, row.Change.StartsOn = readDay(value, column, problems), &row.New.StartsOn
		case FieldEndsOn:
			row.New.EndsOn, row.Change.EndsOn = readDay(value, column, problems), &row.New.EndsOn
		case FieldExternalID:
			row.New.ExternalID = value
		}
	}
	_ = problems.Join(row.New.Check())
	return row, problems
}

func readDay(value, column string, problems rest.Problems) Date {
	day, ok := ParseDate(value)
	if !ok && value != "" {
		problems[column] = DateMessage
	}
	return day
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
	Row   int // in the file of an import, else 0
}

// A Move is a transition of one programme (P2).
type Move struct {
	ID uuid.UUID
	To Status
}

// A Result is what an Upsert or a Move did: the programme, or an error if nothing was written.
type Result struct {
	Programme Programme
	Created   bool
	Err       error
}

// Apply returns the result for the programme that has the external id, or for none if current is nil. The times and
// the version of the result are not set.
func (u Upsert) Apply(current *Programme, id uuid.UUID) Result {
	version := 0
	if current != nil {
		version = current.Version
	}
	if u.Check != nil {
		if err := u.Check(version); err != nil {
			return Result{Err: err}
		}
	}
	if current == nil {
		return Result{Created: true, Programme: New(id, u.New)}
	}
	p, err := u.Change.Apply(*current)
	if err != nil {
		return Result{Err: err}
	}
	if u.Status != nil && *u.Status != p.Status {
		if !p.Status.CanBecome(*u.Status) {
			return Result{Err: ErrTransition}
		}
		p.Status = *u.Status
	}
	return Result{Programme: p}
}

// RowErrors returns the errors of the rows of an import whose results have one.
func RowErrors(rows []Upsert, results []Result) (wrong []RowError) {
	for i, one := range results {
		var problems rest.Problems
		switch {
		case errors.As(one.Err, &problems):
			wrong = appendErrors(wrong, rows[i].Row, problems)
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
