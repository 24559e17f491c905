package programme

import (
	"errors"
	"io"
	"strings"
)

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
func (r *boundedRows) Read(p []byte) (int, error) {
	if r.rest == "" {
		return 0, io.EOF
	}
	if r.measured == 0 {
		row, cells := measureRow(r.rest, r.comma)
		r.line += r.lines
		r.lines = strings.Count(row, "\n")
		switch {
		case cells > maxCells:
			return 0, errTooManyCells
		case len(row) > maxRow:
			return 0, errLongRow
		}
		r.measured = len(row)
	}
	n := copy(p, r.rest[:r.measured])
	r.rest, r.measured = r.rest[n:], r.measured-n
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
