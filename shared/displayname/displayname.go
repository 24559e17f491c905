// Package displayname checks names that people see: of an application, a token, a programme, a form, a person
// or a workspace (contract, section 5).
//
// A name has at least one visible character, and none that is hidden, changes the direction of writing or
// overlaps other lines. Invisible characters that a script or an emoji needs are allowed (sequences.go). An
// application's name, which people trust on the consent page, has no joiners and must not mix scripts within a word
// beyond what UTS 39 calls highly restrictive.
package displayname

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxLength is the maximum length of the name of an application, a token, a person or a workspace, in
// characters.
const MaxLength = 100

// maxMarks is the maximum number of consecutive combining marks. Vietnamese, Hebrew and Thai need two.
const maxMarks = 2

const unseen = "Must be a single line without control characters or invisible characters."

// Empty is the message for a name without a visible character.
const Empty = "Enter a name."

// Check returns what is wrong with a name of up to longest characters, as a message for people, or "".
func Check(name string, longest int) string {
	switch {
	case strings.TrimSpace(name) == "":
		return Empty
	case !utf8.ValidString(name) || strings.ContainsRune(name, unicode.ReplacementChar):
		return "Must be valid UTF-8 text."
	case utf8.RuneCountInString(name) > longest:
		return fmt.Sprintf("Must have at most %d characters.", longest)
	}
	switch plain := withoutSequences(name); {
	case strings.ContainsFunc(plain, Hidden):
		return unseen
	case !Visible(plain):
		return Empty
	case marksInARow(plain) > maxMarks:
		return "Must not have more than two accents or other marks on a letter."
	}
	return ""
}

// CheckApplication is Check for the name of an application, which must have a letter or a number, must have no joiners
// and must not mix scripts within a word.
func CheckApplication(name string) string {
	if message := Check(name, MaxLength); message != "" {
		return message
	}
	if strings.ContainsRune(name, joiner) || strings.ContainsRune(name, nonJoiner) {
		return unseen
	}
	if !strings.ContainsFunc(name, func(r rune) bool { return unicode.In(r, unicode.L, unicode.N) }) {
		return "Must contain a letter or a number."
	}
	if wordMixesScripts(name) {
		return "Must not mix letters of different alphabets in one word."
	}
	return ""
}

// Visible reports whether a text has a visible character.
func Visible(text string) bool { return strings.ContainsFunc(text, visible) }

// Hidden reports whether a name must not have the character outside of a sequence: it is invisible, changes how other
// characters look, or ends the line. All default-ignorable characters of Unicode are hidden.
func Hidden(r rune) bool {
	switch {
	case r == ' ':
		return false
	case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp):
		return true
	case unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector),
		unicode.Is(unicode.Noncharacter_Code_Point, r):
		return true
	}
	return r == blankBraille
}

// blankBraille is a symbol that looks like a space.
const blankBraille = '\u2800'

// visible reports whether a character is visible by itself.
func visible(r rune) bool {
	return unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S) && !Hidden(r)
}

// marksInARow returns the length of the longest sequence of combining marks.
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
