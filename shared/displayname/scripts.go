package displayname

import (
	"strings"
	"unicode"
)

// scripts is a set of scripts.
type scripts map[string]bool

// together lists the scripts that one word may mix, because a language uses them together (Unicode Technical
// Standard 39, section 5.1).
var together = []scripts{
	{"Han": true, "Hiragana": true, "Katakana": true}, // Japanese
	{"Han": true, "Hangul": true},                     // Korean
	{"Han": true, "Bopomofo": true},                   // Chinese
}

// mixesScripts reports whether a word has letters of scripts that no language mixes. A word is a sequence of
// letters, marks and digits.
func mixesScripts(name string) bool {
	for word := range strings.FieldsFuncSeq(name, endsWord) {
		if mixed(word) {
			return true
		}
	}
	return false
}

func endsWord(r rune) bool { return !unicode.In(r, unicode.L, unicode.M, unicode.N) }

func mixed(word string) bool {
	found := scripts{}
	for _, r := range word {
		if script := scriptOf(r); script != "" {
			found[script] = true
		}
	}
	if len(found) <= 1 {
		return false
	}
	for _, language := range together {
		if language.hasAll(found) {
			return false
		}
	}
	return true
}

func (s scripts) hasAll(others scripts) bool {
	for script := range others {
		if !s[script] {
			return false
		}
	}
	return true
}

// scriptOf returns the name of the script of a letter, or "" for characters of many scripts: digits and
// marks.
func scriptOf(r rune) string {
	if r <= unicode.MaxASCII {
		if unicode.IsLetter(r) {
			return "Latin"
		}
		return ""
	}
	if unicode.In(r, unicode.Common, unicode.Inherited) {
		return ""
	}
	for name, table := range unicode.Scripts {
		if unicode.Is(table, r) {
			return name
		}
	}
	return "?" // a letter of a later version of Unicode
}
