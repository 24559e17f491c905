package programme

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
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
	_, _, _, err := openImport(text)
	return err
}

// ReadImport returns the programmes of the rows or the errors in the rows, never both (P5).
func ReadImport(text string) ([]Details, []RowError) {
	reader, columns, source, err := openImport(text)
	if err != nil {
		return nil, []RowError{{Row: 1, Message: "The header is not valid."}}
	}
	var rows []Details
	var wrong []RowError
	header, _ := reader.FieldPos(0)
	at := below(reader, columns, header)
	for {
		record, err := reader.Read()
		row := at.rowOf(reader, record, err)
		if errors.Is(err, io.EOF) {
			break
		}
		if message := tooLarge(err); message != "" {
			row += source.line + 1 - at.line
			wrong = append(wrong, RowError{Row: row, Message: message})
			break
		}
		if len(rows) == MaxImportRows {
			wrong = append(wrong,
				RowError{Row: row, Message: fmt.Sprintf("An import can have at most %d rows.", MaxImportRows)})
			break
		}
		if err != nil {
			// The reader is out of step, so that later rows would be misread.
			wrong = append(wrong, RowError{Row: row, Message: "The row is not valid CSV (RFC 4180). Check its quotes."})
			break
		}
		details, problems := readRow(record, columns)
		details.Row = row
		rows = append(rows, details)
		for _, field := range slices.Sorted(maps.Keys(problems)) {
			wrong = append(wrong, RowError{Row: row, Field: field, Message: problems[field]})
		}
		if len(wrong) >= MaxImportErrors {
			wrong = wrong[:MaxImportErrors]
			break
		}
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	return rows, nil
}

// tooLarge returns the message for a row beyond a bound, or "".
func tooLarge(err error) string {
	switch {
	case errors.Is(err, errTooManyCells):
		return fmt.Sprintf("A row can have at most %d values. The rest of the file was not read.", maxCells)
	case errors.Is(err, errLongRow):
		return fmt.Sprintf("A row can have at most %d KiB. Check its quotes. The rest of the file was not read.",
			maxRow>>10)
	}
	return ""
}

// A place is the position in a file.
type place struct {
	row  int // row of a spreadsheet, empty rows included
	line int // line of the file where the next row begins if none is empty
}

func below(reader *csv.Reader, record []string, row int) place {
	line, _ := reader.FieldPos(0)
	for _, value := range record {
		line += strings.Count(value, "\n")
	}
	return place{row + 1, line + 1}
}

// rowOf returns the number of the row just read and advances p. The reader skips empty lines.
func (p *place) rowOf(reader *csv.Reader, record []string, err error) int {
	row := p.row
	switch fault, broken := errors.AsType[*csv.ParseError](err); {
	case broken:
		row += fault.StartLine - p.line
	case err == nil:
		line, _ := reader.FieldPos(0)
		row += line - p.line
		*p = below(reader, record, row)
	}
	return row
}

// openImport reads the header and returns the reader of the rows, the field of each column, and the source of the
// reader.
func openImport(text string) (*csv.Reader, []string, *boundedRows, error) {
	text = strings.TrimPrefix(text, spreadsheet.ByteOrderMark)
	// The separator does not matter here: the header ends at the first line end outside of a quoted cell.
	header, _ := measureRow(strings.TrimLeft(text, "\r\n"), ',')
	if len(header) > MaxImportHeader {
		return nil, nil, nil, rest.Problems{
			"header": fmt.Sprintf("The header can have at most %d bytes.", MaxImportHeader),
		}
	}
	source := &boundedRows{comma: separatorOf(header), rest: text}
	reader := csv.NewReader(source)
	reader.Comma = rune(source.comma)
	reader.FieldsPerRecord = -1
	columns, err := reader.Read()
	if err != nil {
		return nil, nil, nil, rest.Problems{"header": "The first line must name the columns: " +
			"name,summary,status,startsOn,endsOn,externalId in any order."}
	}
	columns = withoutEmptyEnd(columns, 0)
	known := []string{FieldName, FieldSummary, FieldStatus, FieldStartsOn, FieldEndsOn, FieldExternalID}
	for i, column := range columns {
		if !slices.Contains(known, column) || slices.Contains(columns[:i], column) {
			return nil, nil, nil, rest.Problems{
				"header": "The columns can only be name,summary,status,startsOn,endsOn,externalId, each once, " +
					"separated by commas, semicolons or tabs.",
			}
		}
	}
	if !slices.Contains(columns, FieldName) {
		return nil, nil, nil, rest.Problems{"header": "The name column is required."}
	}
	return reader, columns, source, nil
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
		default:
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

// boundedRows reads text one row at a time and fails at the first row beyond a bound. The csv.Reader on top of it
// never buffers more than one row, so it never splits a row that was not measured.
type boundedRows struct {
	comma    byte   // between the cells
	rest     string // not returned yet
	measured int    // bytes of rest in a row within the bounds
	line     int    // first line of the last measured row, from 0
	lines    int    // lines of that row
}

// Read implements io.Reader. It never returns bytes of two rows at once.
func (b *boundedRows) Read(p []byte) (int, error) {
	if b.rest == "" {
		return 0, io.EOF
	}
	if b.measured == 0 {
		row, cells := measureRow(b.rest, b.comma)
		b.line += b.lines
		b.lines = strings.Count(row, "\n")
		switch {
		case cells > maxCells:
			return 0, errTooManyCells
		case len(row) > maxRow:
			return 0, errLongRow
		}
		b.measured = len(row)
	}
	n := copy(p, b.rest[:b.measured])
	b.rest, b.measured = b.rest[n:], b.measured-n
	return n, nil
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
