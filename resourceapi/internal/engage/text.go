package engage

import (
	"encoding/json"
	"fmt"
	"net/mail"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Maximum lengths of answers, in characters.
const (
	MaxText     = 200
	MaxTextarea = 5000
	maxEmail    = 254 // RFC 5321, section 4.5.3.1.3, without the brackets
	maxNumber   = 40
)

// checkText returns what is wrong with a non-empty text answer.
func (f Field) checkText(text string, texts Problems) string {
	if message := checkLength(text, f.Type, texts); message != "" {
		return message
	}
	switch f.Type {
	case Email:
		return checkEmail(text, texts)
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
	if strings.ContainsFunc(
		text,
		func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune(allowed, r) },
	) {
		return texts.Control
	}
	return ""
}

// checkEmail accepts only a bare address: no display name, no comment, no quotes.
func checkEmail(text string, texts Problems) string {
	address, err := mail.ParseAddress(text)
	if err != nil || address.Name != "" || address.Address != text || strings.ContainsAny(text, "\"()<>[] ") {
		return texts.Email
	}
	return ""
}

var phone = regexp.MustCompile(`^\+?[0-9 ().\-/]+$`)

// checkPhone checks the number of digits: 5 to 15, the maximum of ITU-T E.164.
func checkPhone(text string, texts Problems) string {
	digits := strings.Count(strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return '0'
		}
		return -1
	}, text), "0")
	if !phone.MatchString(text) || digits < 5 || digits > 15 {
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
