package rest

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// TimeLayout is the format of a time: RFC 3339 in UTC with six decimals, so that times also compare as text. Times must
// be in UTC.
const TimeLayout = "2006-01-02T15:04:05.000000Z07:00"

// A Time marshals in the format of FormatTime.
type Time time.Time

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) {
	b := append(make([]byte, 0, len(TimeLayout)+2), '"')
	return append(AppendTime(b, time.Time(t)), '"'), nil
}

// Scan implements sql.Scanner, for a time that is never null.
func (t *Time) Scan(value any) error {
	at, ok := value.(time.Time)
	if !ok {
		return fmt.Errorf("%T is not a time", value)
	}
	*t = Time(at)
	return nil
}

// TimePointer returns t as a *Time, or nil if t is nil.
func TimePointer(t *time.Time) *Time { return (*Time)(t) }

// FormatTime returns t in the JSON format.
func FormatTime(t time.Time) string { return string(AppendTime(nil, t)) }

// AppendTime appends the result of FormatTime.
func AppendTime(b []byte, t time.Time) []byte { return t.UTC().AppendFormat(b, TimeLayout) }

// ErrNotTime reports that a text is not an RFC 3339 time.
var ErrNotTime = errors.New("not a time as RFC 3339 writes it")

// TimeMessage explains ErrNotTime to a caller.
const TimeMessage = "Must be an RFC 3339 time, such as 2026-11-01T09:00:00.123456Z. In a query, encode the + of an " +
	"offset as %2B."

// timeShape is stricter than time.Parse.
var timeShape = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$`)

// ParseTime parses an RFC 3339 time. It rounds up to microseconds, so that no stored time before the given one is
// at or after the returned one. It never returns the zero time, which means none.
func ParseTime(text string) (time.Time, error) {
	text = strings.ToUpper(text) // t and z are allowed
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || !timeShape.MatchString(text) {
		return time.Time{}, ErrNotTime
	}
	if t = t.UTC(); t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}, ErrNotTime
	}
	whole := t.Truncate(time.Microsecond)
	if whole.Before(t) || whole.IsZero() {
		whole = whole.Add(time.Microsecond)
	}
	return whole, nil
}
