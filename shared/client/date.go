package client

import (
	"encoding/json"
	"time"
)

// A Date is a day in the form YYYY-MM-DD. "" means no date and is null in JSON.
type Date string

// DateOf returns the day of the time in its own time zone.
func DateOf(t time.Time) Date { return Date(t.Format(time.DateOnly)) }

// Time returns the beginning of the day in UTC. It returns an error if the day does not exist or is empty.
func (d Date) Time() (time.Time, error) { return time.Parse(time.DateOnly, string(d)) }

// MarshalJSON implements json.Marshaler.
func (d Date) MarshalJSON() ([]byte, error) {
	if d == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(d))
}
