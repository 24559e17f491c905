package programme

import (
	"errors"
	"io"
	"strings"
)

// Bounds of the rows of an import. They hold before a row is split into cells, because each cell costs the parser many
// times its own byte.
const (
	MaxImportHeader = 1 << 10 // bytes of the header
	// bytes of a row; the longest valid one, with every character doubled as a quote, is shorter
	maxRow   = 64 << 10
	maxCells = 100 // in a row
)

// Rows that are not split into cells.
var (
	errLongRow      = errors.New("a row of too many bytes")
	errTooManyCells = errors.New("a row of too many cells")
)

// boundedRows reads text one row at a time and fails at the first row that passes a bound. The csv.Reader above it has
// no more than one row in its buffer, so it never splits a row that was not measured.
type boundedRows struct {
	rest     string // not handed out yet
	measured int    // bytes of rest that belong to a row within the bounds
	line     int    // of the text, where the row that was measured last begins; from 0
	lines    int    // of that row
}

// Read is io.Reader's. It never returns bytes of two rows at once.
func (r *boundedRows) Read(p []byte) (int, error) {
	if r.rest == "" {
		return 0, io.EOF
	}
	if r.measured == 0 {
		row, cells := measureRow(r.rest)
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

// measureRow returns the first row of text, with its line end, and the number of its cells. A line end or a comma
// between quotes belongs to a cell. Up to the first misplaced quote, where csv.Reader stops as well, both see the same
// rows.
func measureRow(text string) (row string, cells int) {
	quoted := false
	cells = 1
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == ',':
			cells++
		case c == '\n':
			return text[:i+1], cells
		}
	}
	return text, cells
}
