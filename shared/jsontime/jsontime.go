// Package jsontime reads and writes the times of JSON: RFC 3339, in UTC, to the microsecond, always with six decimals,
// so that times compare as texts as well. Both services write their JSON with it.
package jsontime

import (
	"errors"
	"regexp"
	"strings"
	"time"
)

// Layout is how a time is written. Times must be in UTC.
const Layout = "2006-01-02T15:04:05.000000Z07:00"

// A Time is a time that marshals as Format writes it.
type Time time.Time

// MarshalJSON is json.Marshaler's.
func (t Time) MarshalJSON() ([]byte, error) {
	b := append(make([]byte, 0, len(Layout)+2), '"')
	return append(Append(b, time.Time(t)), '"'), nil
}

// Pointer is t as a *Time, nil if t is nil.
func Pointer(t *time.Time) *Time { return (*Time)(t) }

// Format returns t as JSON has it.
func Format(t time.Time) string { return string(Append(nil, t)) }

// Append appends what Format returns.
func Append(b []byte, t time.Time) []byte { return t.UTC().AppendFormat(b, Layout) }

// ErrNotTime says that a text is no RFC 3339 time.
var ErrNotTime = errors.New("not a time as RFC 3339 writes it")

// Message tells a caller what ErrNotTime means in a query string.
const Message = "Must be a time as RFC 3339 writes it: 2026-11-01T09:00:00.123456Z. In a query, the + of an offset " +
	"is %2B."

// shape is what time.Parse is more lenient about.
var shape = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$`)

// Parse reads an RFC 3339 time. What is finer than a microsecond is rounded up, so that no stored time before the one
// given is at or after the one returned. It never returns the zero time, which stands for none.
func Parse(text string) (time.Time, error) {
	text = strings.ToUpper(text) // t and z are allowed
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || !shape.MatchString(text) {
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
