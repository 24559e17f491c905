// Package spreadsheet protects CSV files against formulas. The exports of both services use it.
package spreadsheet

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// formulaStarts are the characters with which a spreadsheet program begins to read a cell as a formula, in the usual
// and in the full-width form.
const formulaStarts = "=+-@|%＝＋－＠"

// Cell returns a text for a cell of a CSV file. A text that a spreadsheet program would run as a formula
// is preceded by an apostrophe, which marks text there.
func Cell(text string) string {
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
