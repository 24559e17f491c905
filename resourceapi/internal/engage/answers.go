package engage

import (
	"bytes"
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
	"github.com/almonerhq/almoner/shared/page/spreadsheet"
	"github.com/almonerhq/almoner/shared/rest"
)

// Answers are valid answers by the names of their fields: a string, a json.Number, a []string or a bool. Empty
// answers are absent.
type Answers map[string]any

// UnmarshalJSON decodes stored answers and preserves every digit of numbers.
func (a *Answers) UnmarshalJSON(content []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	var kept map[string]any
	if err := decoder.Decode(&kept); err != nil {
		return err
	}
	*a = kept
	return nil
}

// A ConsentAnswer is the answer to one consent field.
type ConsentAnswer struct {
	Field         string `json:"field"`
	NoticeVersion string `json:"noticeVersion"`
	Given         bool   `json:"given"`
}

// Problems are the messages about invalid answers.
type Problems struct {
	Missing string `json:"missing"`
	Agree   string `json:"agree"`
	TooLong string `json:"tooLong"` // %d: the maximum number of characters
	Control string `json:"control"`
	Email   string `json:"email"`
	Phone   string `json:"phone"`
	Number  string `json:"number"`
	Date    string `json:"date"`
	Option  string `json:"option"`
	Options string `json:"options"`
}

// Read checks the answers to the form as received, by the names of the fields. Its error is a rest.Problems (E2) with
// messages from texts.
func (f Form) Read(given rest.Object, texts Problems) (Answers, []ConsentAnswer, error) {
	answers, consents, problems := Answers{}, []ConsentAnswer{}, rest.Problems{}
	asked := map[string]bool{} // by the names of all fields
	for _, field := range f.Fields {
		isAsked := field.askedOf(asked, answers)
		asked[field.Name] = isAsked
		field.Required = field.Required && isAsked
		value, message := field.read(given[field.Name], texts)
		if message != "" {
			problems[field.Name] = message
			continue
		}
		if field.Type == Consent {
			if !isAsked && value != true {
				continue // the notice may not have been on screen (E4)
			}
			consents = append(consents, ConsentAnswer{field.Name, field.NoticeVersion(), value == true})
		}
		if value != nil {
			answers[field.Name] = value
		}
	}
	for name := range given {
		_, known := asked[name]
		switch {
		case known:
		case fieldName.MatchString(name):
			problems[name] = "The form does not have this field."
		default:
			problems["answers"] = "Contains a name that is not a field of this form."
		}
	}
	return answers, consents, problems.OrNil()
}

// read returns the value of one answer, nil if it is empty, or a message if it is invalid.
func (f Field) read(raw json.RawMessage, texts Problems) (value any, message string) {
	if len(raw) == 0 || string(raw) == "null" {
		return f.nothing(texts)
	}
	switch f.Type {
	case Number:
		return readNumber(raw, texts)
	case Consent:
		return f.readConsent(raw, texts)
	case Multiselect:
		return f.readChoices(raw, texts)
	}
	var text string
	if raw[0] != '"' || json.Unmarshal(raw, &text) != nil {
		return nil, "Must be a string."
	}
	if text = f.normalized(text); text == "" {
		return f.nothing(texts)
	}
	if message := f.checkText(text, texts); message != "" {
		return nil, message
	}
	return text, ""
}

func (f Field) nothing(texts Problems) (any, string) {
	switch {
	case f.Required && f.Type == Consent:
		return nil, texts.Agree
	case f.Required:
		return nil, texts.Missing
	}
	return nil, ""
}

func (f Field) readConsent(raw json.RawMessage, texts Problems) (any, string) {
	switch string(raw) {
	case "true":
		return true, ""
	case "false":
		if f.Required {
			return nil, texts.Agree
		}
		return false, ""
	}
	return nil, "Must be true or false."
}

func (f Field) readChoices(raw json.RawMessage, texts Problems) (any, string) {
	var chosen []string
	if raw[0] != '[' || json.Unmarshal(raw, &chosen) != nil {
		return nil, "Must be an array of strings."
	}
	if len(chosen) == 0 {
		return f.nothing(texts)
	}
	for i, choice := range chosen {
		if !slices.Contains(f.Options, choice) {
			return nil, texts.Options
		}
		if slices.Contains(chosen[:i], choice) {
			return nil, fmt.Sprintf("Choice %d is a duplicate.", i+1)
		}
	}
	return chosen, ""
}

// CellsOf returns a cell for each field: the answer, or "" if there is none.
func CellsOf(fields []Field, stored json.RawMessage) ([]string, error) {
	var answers map[string]json.RawMessage
	if err := json.Unmarshal(stored, &answers); err != nil {
		return nil, fmt.Errorf("read stored answers: %w", err)
	}
	cells := make([]string, len(fields))
	for i, field := range fields {
		answer, given := answers[field.Name]
		if !given {
			continue
		}
		cell, err := cellOf(field, answer)
		if err != nil {
			return nil, fmt.Errorf("read a stored answer: %w", err)
		}
		cells[i] = cell
	}
	return cells, nil
}

// cellOf returns the cell of one answer. It does not change numbers and booleans, which cannot be formulas, nor phone
// numbers, which another system must read as they are (contract, section 6a).
func cellOf(field Field, answer json.RawMessage) (string, error) {
	if strings.HasPrefix(string(answer), "[") {
		var chosen []string
		err := json.Unmarshal(answer, &chosen)
		return spreadsheet.Cell(strings.Join(chosen, "; ")), err
	}
	if strings.HasPrefix(string(answer), `"`) {
		var text string
		err := json.Unmarshal(answer, &text)
		if field.Type == Phone && checkPhone(text, Problems{Phone: "no phone number"}) == "" {
			return text, err
		}
		return spreadsheet.Cell(text), err
	}
	if _, err := strconv.ParseFloat(string(answer), 64); err == nil {
		return string(answer), nil
	}
	return spreadsheet.Cell(string(answer)), nil
}

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
		email, ok := spelling.Email(text)
		if ok && (strings.ToLower(text) != email || utf8.RuneCountInString(text) != len(text)) {
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
