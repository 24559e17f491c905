// Package displayname checks names that people see: of an application, a token, a programme, a form, a person
// or a workspace (contract, section 5).
//
// A name has at least one visible character, and none that is hidden, changes the direction of writing or
// overlaps other lines. Invisible characters that a script or an emoji needs are allowed. An
// application's name, which people trust on the consent page, has no joiners and must not mix scripts within a word
// beyond what UTS 39 calls highly restrictive.
package displayname

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
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
	// A word is a sequence of letters, marks and digits.
	if slices.ContainsFunc(strings.FieldsFunc(name, endsWord), MixesScripts) {
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

// together lists the scripts that one word may mix: the restriction level “highly restrictive” of Unicode Technical
// Standard 39, section 5.2.
var together = [][]string{
	{"Latin", "Han", "Hiragana", "Katakana"}, // Japanese
	{"Latin", "Han", "Hangul"},               // Korean
	{"Latin", "Han", "Bopomofo"},             // Chinese
}

// likeLatin are the characters of these scripts that look like a Latin letter or a part of one.
const likeLatin = "丨丿亅乙乚乛〇口囗工丁丅卜凵匚冂八ロエトノハㄇㄥㄒㄧㄩㅣㅇㅡ"

func endsWord(r rune) bool { return !unicode.In(r, unicode.L, unicode.M, unicode.N) }

// MixesScripts reports whether a word, such as a label of a domain, mixes letters of scripts that no language mixes
// (UTS 39, section 5.2, highly restrictive), or has letters that look like Latin ones among Latin letters.
func MixesScripts(word string) bool {
	var found []string
	for _, r := range word {
		if script := scriptOf(r); script != "" && !slices.Contains(found, script) {
			found = append(found, script)
		}
	}
	if len(found) <= 1 {
		return false
	}
	for _, language := range together {
		other := func(script string) bool { return !slices.Contains(language, script) }
		if !slices.ContainsFunc(found, other) {
			return slices.Contains(found, "Latin") && hidesInLatin(word)
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

// Characters that Unicode lets programs ignore, but that some words and emoji need.
const (
	nonJoiner = '\u200c'
	joiner    = '\u200d'
	asEmoji   = '\ufe0f' // variation selector 16
)

// pictographs are the characters with the property Emoji of UTS 51, as a character class, without digits and regional
// indicators. Beyond U+FFFF these are whole blocks, because Unicode keeps adding emoji there.
const pictographs = `©®‼⁉™ℹ↔-↙↩↪⌚⌛⌨⏏⏩-⏳⏸-⏺Ⓜ▪▫▶◀◻-◾☀-☄☎☑☔☕☘☝☠☢☣☦☪☮☯☸-☺♀♂♈-♓♟♠♣♥♦♨♻♾♿⚒-⚗⚙⚛⚜⚠⚡⚧⚪⚫⚰⚱⚽⚾⛄⛅⛈⛎⛏⛑⛓⛔⛩⛪⛰-⛵⛷-⛺⛽` +
	`✂✅✈-✍✏✒✔✖✝✡✨✳✴❄❇❌❎❓-❕❗❣❤➕-➗➡➰➿⤴⤵⬅-⬇⬛⬜⭐⭕〰〽㊗㊙` +
	`\x{1F004}\x{1F0CF}\x{1F170}-\x{1F1E5}\x{1F200}-\x{1F251}\x{1F300}-\x{1F3FA}\x{1F400}-\x{1FAFF}`

// element is an emoji that can be part of a sequence (UTS 51, ED-15a).
const element = `[` + pictographs + `](?:\x{FE0F}|[\x{1F3FB}-\x{1F3FF}])?`

// emoji matches an emoji sequence that has invisible characters: the flag of a region of a country, a keycap, and
// pictographs that are joined or have a variation selector (UTS 51, ED-17).
var emoji = regexp.MustCompile(`\x{1F3F4}[\x{E0030}-\x{E0039}\x{E0061}-\x{E007A}]{1,6}\x{E007F}` +
	`|[0-9#*]\x{FE0F}\x{20E3}` +
	`|` + element + `(?:\x{200D}` + element + `)*`)

// joiners checks the rules for joiners in words (RFC 5892, appendices A.1 and A.2).
var joiners = idna.New(idna.CheckJoiners(true))

// withoutSequences returns a name without the invisible characters that it may have: those of emoji sequences, and
// joiners where the script needs them.
func withoutSequences(name string) string {
	if !strings.ContainsFunc(name, ignorable) {
		return name
	}
	name = emoji.ReplaceAllStringFunc(name, func(sequence string) string {
		return strings.Map(func(r rune) rune {
			if ignorable(r) {
				return -1
			}
			return r
		}, sequence)
	})
	var out strings.Builder
	word := 0 // where the current word begins
	for i, r := range name + " " {
		if r != nonJoiner && r != joiner && endsWord(r) {
			out.WriteString(withoutJoiners(name[word:i]))
			word = i
		}
	}
	out.WriteString(name[word:])
	return out.String()
}

// withoutJoiners returns a word without its joiners, or unchanged if one of them is not allowed. It may begin with the
// character that ends the word before.
func withoutJoiners(word string) string {
	letters := strings.TrimLeftFunc(word, func(r rune) bool { return r != nonJoiner && r != joiner && endsWord(r) })
	if _, err := joiners.ToUnicode(letters); err != nil {
		return word
	}
	return strings.NewReplacer(string(nonJoiner), "", string(joiner), "").Replace(word)
}

func ignorable(r rune) bool {
	return r == nonJoiner || r == joiner || r == asEmoji || unicode.Is(unicode.Cf, r)
}
