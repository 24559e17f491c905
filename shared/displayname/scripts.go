package displayname

import (
	"strings"
	"unicode"
)

// scripts is a set of scripts.
type scripts map[string]bool

// together lists the scripts that one word may mix: the restriction level “highly restrictive” of Unicode Technical
// Standard 39, section 5.2.
var together = []scripts{
	{"Latin": true, "Han": true, "Hiragana": true, "Katakana": true}, // Japanese
	{"Latin": true, "Han": true, "Hangul": true},                     // Korean
	{"Latin": true, "Han": true, "Bopomofo": true},                   // Chinese
}

// likeLatin are the characters of these scripts that look like a Latin letter or a part of one.
const likeLatin = "丨丿亅乙乚乛〇口囗工丁丅卜凵匚冂八ロエトノハㄇㄥㄒㄧㄩㅣㅇㅡ"

// wordMixesScripts reports whether a word has letters of scripts that no language mixes. A word is a sequence of
// letters, marks and digits.
func wordMixesScripts(name string) bool {
	for word := range strings.FieldsFuncSeq(name, endsWord) {
		if MixesScripts(word) {
			return true
		}
	}
	return false
}

func endsWord(r rune) bool { return !unicode.In(r, unicode.L, unicode.M, unicode.N) }

// MixesScripts reports whether a word, such as a label of a domain, mixes letters of scripts that no language mixes
// (UTS 39, section 5.2, highly restrictive), or has letters that look like Latin ones among Latin letters.
func MixesScripts(word string) bool {
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
			return found["Latin"] && hidesInLatin(word)
		}
	}
	return true
}

// hidesInLatin reports whether a word with Latin letters has a run of other letters that all look like Latin ones.
func hidesInLatin(word string) bool {
	for run := range strings.FieldsFuncSeq(word, func(r rune) bool {
		return scriptOf(r) == "Latin" || !unicode.IsLetter(r) && !unicode.Is(unicode.Nl, r)
	}) {
		if strings.Trim(run, likeLatin) == "" {
			return true
		}
	}
	return false
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
