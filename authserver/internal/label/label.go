// Package label answers: can this text stand as a name on a page?
package label

import (
	"strings"
	"unicode"
)

const maxLength = 100

// Presentable says whether a name has 1 to 100 characters that are seen, a letter or digit among them, and none that is invisible,
// turns the direction of writing or stands for nothing.
func Presentable(name string) bool {
	unseen := func(r rune) bool {
		return !unicode.IsGraphic(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar
	}
	spoken := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }
	return len([]rune(name)) <= maxLength && strings.ContainsFunc(name, spoken) && !strings.ContainsFunc(name, unseen)
}
