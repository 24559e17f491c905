package displayname

import (
	"regexp"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
)

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
