package programme

import (
	"errors"
	"time"
)

// A Date is a calendar day, without a time or a time zone.
type Date struct{ day time.Time }

const dateLayout = "2006-01-02"

// ErrDate is returned for a text that is not a day written YYYY-MM-DD.
var ErrDate = errors.New("not a day written YYYY-MM-DD")

// ParseDate parses YYYY-MM-DD, with years 0001 to 9999.
func ParseDate(text string) (Date, error) {
	day, err := time.Parse(dateLayout, text)
	if err != nil || day.Year() < 1 {
		return Date{}, ErrDate
	}
	return Date{day}, nil
}

// DateOf returns the day of t in UTC.
func DateOf(t time.Time) Date {
	year, month, day := t.UTC().Date()
	return Date{time.Date(year, month, day, 0, 0, 0, 0, time.UTC)}
}

// Time returns the start of the day in UTC.
func (d Date) Time() time.Time { return d.day }

// Before reports whether d is an earlier day than other.
func (d Date) Before(other Date) bool { return d.day.Before(other.day) }

func sameDay(a, b *Date) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.day.Equal(b.day)
}

// String formats the day as YYYY-MM-DD.
func (d Date) String() string { return d.day.Format(dateLayout) }
