package engage

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/almonerhq/almoner/shared/contract/spelling"
)

// Maximum lengths of answers, in characters.
const (
	MaxText     = 200
	MaxTextarea = 5000
	maxEmail    = 254
	maxNumber   = 40
)

// checkText returns what is wrong with a non-empty text answer.
func (f Field) checkText(text string, texts Problems) string {
	if message := checkLength(text, f.Type, texts); message != "" {
		return message
	}
	switch f.Type {
	case Email:
		if _, ok := spelling.Email(text); !ok {
			return texts.Email
		}
	case Phone:
		return checkPhone(text, texts)
	case Date:
		if day, err := time.Parse(time.DateOnly, text); err != nil || day.Year() < 1 {
			return texts.Date
		}
	case Select:
		if !slices.Contains(f.Options, text) {
			return texts.Option
		}
	}
	return ""
}

func checkLength(text string, kind Type, texts Problems) string {
	longest, allowed := MaxText, ""
	switch kind {
	case Textarea:
		longest, allowed = MaxTextarea, "\n\t"
	case Email:
		longest = maxEmail
	}
	if utf8.RuneCountInString(text) > longest {
		return fmt.Sprintf(texts.TooLong, longest)
	}
	if strings.ContainsFunc(text,
		func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune(allowed, r) }) {
		return texts.Control
	}
	return ""
}

// normalized returns the spelling of an answer that is stored, so that pasted text is accepted and an erasure finds an
// address in any spelling. An address stays as it was typed if its canonical spelling differs only in the case of
// ASCII.
func (f Field) normalized(text string) string {
	switch f.Type {
	case Email:
		text = spelling.Pasted(text)
		other := func(r rune) bool { return r > unicode.MaxASCII }
		email, ok := spelling.Email(text)
		if ok && (strings.ToLower(text) != email || strings.ContainsFunc(text, other)) {
			return email
		}
		return text
	case Phone:
		return spelling.Phone(text)
	}
	return strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
}

// phone matches a number and its extension.
var phone = regexp.MustCompile(`^(\+?[0-9 ().\-/]+)(?i:[ ,;]*(?:ext\.?|extension|x|#) *[0-9]{1,7})?$`)

// checkPhone checks the number of digits without an extension: 5 to 15, the maximum of ITU-T E.164.
func checkPhone(text string, texts Problems) string {
	parts := phone.FindStringSubmatch(text)
	if parts == nil {
		return texts.Phone
	}
	digits := 0
	for _, r := range parts[1] {
		if '0' <= r && r <= '9' {
			digits++
		}
	}
	if digits < 5 || digits > 15 {
		return texts.Phone
	}
	return ""
}

// maxPower bounds the exponent of a number: Postgres cannot store exponents beyond some thousands, not even of zero.
const maxPower = 400

// readNumber preserves the spelling, so that no digit is lost to rounding.
func readNumber(raw json.RawMessage, texts Problems) (any, string) {
	var number json.Number
	if raw[0] == '"' || len(raw) > maxNumber || json.Unmarshal(raw, &number) != nil {
		return nil, texts.Number
	}
	_, exponent, _ := strings.Cut(strings.ToLower(number.String()), "e")
	power, _ := strconv.Atoi(exponent) // clamped to the range of an int
	if _, err := strconv.ParseFloat(number.String(), 64); err != nil || power < -maxPower || power > maxPower {
		return nil, texts.Number
	}
	return number, ""
}
