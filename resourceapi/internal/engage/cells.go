package engage

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// formulaStarts are the characters, in normal and full-width form, that make a spreadsheet program read a cell as a
// formula.
const formulaStarts = "=+-@|%＝＋－＠"

// separators split a line into cells if a spreadsheet program reads the file with a separator other than the comma.
var separators = regexp.MustCompile(`([;\t\r\n])([^;\t\r\n]+)`)

// Cell returns text for a cell of a CSV file. If a spreadsheet program would run the text, or a part after another
// separator, as a formula, Cell adds an apostrophe before it, which marks the cell as text.
func Cell(text string) string {
	return separators.ReplaceAllStringFunc(marked(text), func(part string) string {
		return part[:1] + markedAfterSeparator(part[1:])
	})
}

// markedAfterSeparator leaves a text of spaces as it is.
func markedAfterSeparator(text string) string {
	if strings.TrimLeftFunc(text, ignoredInCell) == "" {
		return text
	}
	return marked(text)
}

func marked(text string) string {
	first, _ := utf8.DecodeRuneInString(strings.TrimLeftFunc(text, ignoredInCell))
	starts, _ := utf8.DecodeRuneInString(text)
	if text != "" && (strings.ContainsRune(formulaStarts, first) || unicode.IsControl(starts)) {
		return "'" + text
	}
	return text
}

// ignoredInCell reports whether a spreadsheet program may drop r at the start of a cell.
func ignoredInCell(r rune) bool {
	return unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
}

// CellsOf returns a cell for each field: the answer, or "" if there is none.
func CellsOf(fields []Field, stored json.RawMessage) ([]string, error) {
	var answers map[string]json.RawMessage
	if err := json.Unmarshal(stored, &answers); err != nil {
		return nil, fmt.Errorf("read stored answers: %w", err)
	}
	cells := make([]string, len(fields))
	for i, field := range fields {
		answer, given := answers[field.Name]
		if !given {
			continue
		}
		cell, err := cellOf(answer)
		if err != nil {
			return nil, fmt.Errorf("read a stored answer: %w", err)
		}
		cells[i] = cell
	}
	return cells, nil
}

// cellOf returns the cell of one answer. It does not change numbers and booleans, which cannot be formulas.
func cellOf(answer json.RawMessage) (string, error) {
	if strings.HasPrefix(string(answer), "[") {
		var chosen []string
		err := json.Unmarshal(answer, &chosen)
		return Cell(strings.Join(chosen, "; ")), err
	}
	if strings.HasPrefix(string(answer), `"`) {
		var text string
		err := json.Unmarshal(answer, &text)
		return Cell(text), err
	}
	if _, err := strconv.ParseFloat(string(answer), 64); err == nil {
		return string(answer), nil
	}
	return Cell(string(answer)), nil
}
