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
func (f Field) checkText(text string) string {
	if message := checkLength(text, f.Type); message != "" {
		return message
	}
	switch f.Type {
	case Email:
		return checkEmail(text)
	case Phone:
		return checkPhone(text)
	case Date:
		if day, err := time.Parse(time.DateOnly, text); err != nil || day.Year() < 1 {
			return "Please enter a valid date in the format YYYY-MM-DD."
		}
	case Select:
		if !slices.Contains(f.Options, text) {
			return "Please choose one of the options."
		}
	}
	return ""
}

func checkLength(text string, kind Type) string {
	longest, allowed := MaxText, ""
	switch kind {
	case Textarea:
		longest, allowed = MaxTextarea, "\n\t"
	case Email:
		longest = maxEmail
	}
	if utf8.RuneCountInString(text) > longest {
		return fmt.Sprintf("Please enter at most %d characters.", longest)
	}
	if strings.ContainsFunc(
		text,
		func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune(allowed, r) },
	) {
		return "Please remove control characters and line breaks."
	}
	return ""
}

// checkEmail accepts only a bare address: no display name, no comment, no quotes.
func checkEmail(text string) string {
	address, err := mail.ParseAddress(text)
	if err != nil || address.Name != "" || address.Address != text || strings.ContainsAny(text, "\"()<>[] ") {
		return "Please enter an e-mail address, such as name@example.org."
	}
	return ""
}

var phone = regexp.MustCompile(`^\+?[0-9 ().\-/]+$`)

// checkPhone checks the number of digits: 5 to 15, the maximum of ITU-T E.164.
func checkPhone(text string) string {
	digits := strings.Count(strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return '0'
		}
		return -1
	}, text), "0")
	if !phone.MatchString(text) || digits < 5 || digits > 15 {
		return "Please enter a phone number with 5 to 15 digits, and + before a country code."
	}
	return ""
}

// maxPower bounds the exponent of a number: Postgres cannot store exponents beyond some thousands, not even of zero.
const maxPower = 400

// readNumber preserves the spelling, so that no digit is lost to rounding.
func readNumber(raw json.RawMessage) (any, string) {
	const message = "Please enter a number, such as 4 or 4.5."
	var number json.Number
	if raw[0] == '"' || len(raw) > maxNumber || json.Unmarshal(raw, &number) != nil {
		return nil, message
	}
	_, exponent, _ := strings.Cut(strings.ToLower(number.String()), "e")
	power, _ := strconv.Atoi(exponent) // clamped to the range of an int
	if _, err := strconv.ParseFloat(number.String(), 64); err != nil || power < -maxPower || power > maxPower {
		return nil, message
	}
	return number, ""
}
