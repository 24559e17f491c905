// Package spreadsheet makes CSV files that spreadsheet programs read as they are meant: in UTF-8, and without formulas.
// The exports of both services use it.
package spreadsheet

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ByteOrderMark begins a CSV file. Without it, a spreadsheet program does not read the file as UTF-8.
const ByteOrderMark = "\ufeff"

// formulaStarts are the characters with which a spreadsheet program begins to read a cell as a formula, in the usual
// and in the full-width form.
const formulaStarts = "=+-@|%＝＋－＠"

// separators split a line into cells where a spreadsheet program reads the file with another separator than the comma.
var separators = regexp.MustCompile(`([;\t\r\n])([^;\t\r\n]+)`)

// Cell returns a text for a cell of a CSV file. A text that a spreadsheet program would run as a formula is preceded by
// an apostrophe, which marks text there, also after another separator.
func Cell(text string) string {
	return separators.ReplaceAllStringFunc(marked(text), func(part string) string {
		if strings.TrimLeftFunc(part[1:], ignoredInCell) == "" {
			return part
		}
		return part[:1] + marked(part[1:])
	})
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
