// Package displayname decides whether a text may stand as a name that people see: of an application, a token, a
// programme, a form, a person or a workspace (contract, section 5).
//
// A name has at least one character that is seen, and none that hides, turns the direction of writing or piles up on
// another line. An application's name, which people trust on the consent page, mixes no scripts within a word either.
package displayname

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxLength is the longest name of an application, a token, a person or a workspace, in characters.
const MaxLength = 100

// maxMarks is how many combining marks may follow each other. Vietnamese, Hebrew and Thai need two.
const maxMarks = 2

// Check returns what is wrong with a name of at most longest characters, in words for a person, or "".
func Check(name string, longest int) string {
	switch {
	case !utf8.ValidString(name) || strings.ContainsRune(name, unicode.ReplacementChar):
		return "Must be text in UTF-8."
	case utf8.RuneCountInString(name) > longest:
		return fmt.Sprintf("Must have at most %d characters.", longest)
	case strings.ContainsFunc(name, hidden):
		return "Must be one line without control characters and other characters that are not seen."
	case !Visible(name):
		return "Must have a character that is seen."
	case marksInARow(name) > maxMarks:
		return "Must not have more than two accents or other marks on one letter."
	}
	return ""
}

// CheckApplication is Check for the name of an application, which has a letter or a number, and in which no word mixes
// scripts.
func CheckApplication(name string) string {
	if message := Check(name, MaxLength); message != "" {
		return message
	}
	if !strings.ContainsFunc(name, func(r rune) bool { return unicode.In(r, unicode.L, unicode.N) }) {
		return "Must have a letter or a number."
	}
	if mixesScripts(name) {
		return "Must not have letters of different alphabets in one word."
	}
	return ""
}

// Visible reports whether a text has a character that is seen.
func Visible(text string) bool { return strings.ContainsFunc(text, visible) }

// hidden says whether a name must not have the character: it is never seen, it changes how others are seen, or it ends
// the line. Joiners are among them: Unicode lets a program ignore them, so two names could differ in nothing that is
// seen.
func hidden(r rune) bool {
	switch {
	case r == ' ':
		return false
	case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp):
		return true
	case unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, unicode.Noncharacter_Code_Point):
		return true
	}
	return r == blankBraille
}

// blankBraille is a symbol that looks like a space.
const blankBraille = '\u2800'

// visible says whether a character is seen by itself.
func visible(r rune) bool {
	return unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S) && !hidden(r)
}

// marksInARow returns the length of the longest row of combining marks.
func marksInARow(name string) (most int) {
	row := 0
	for _, r := range name {
		if row++; !unicode.Is(unicode.M, r) {
			row = 0
		}
		most = max(most, row)
	}
	return most
}
