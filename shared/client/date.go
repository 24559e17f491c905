package client

import (
	"encoding/json"
	"time"
)

// A Date is a day, written YYYY-MM-DD; "" is none, which JSON writes as null.
type Date string

// DateOf is the day of the time, in the time's own zone.
func DateOf(t time.Time) Date { return Date(t.Format(time.DateOnly)) }

// Time is the beginning of the day in UTC. It returns an error where the day does not exist, as where there is none.
func (d Date) Time() (time.Time, error) { return time.Parse(time.DateOnly, string(d)) }

// MarshalJSON writes the day, or null.
func (d Date) MarshalJSON() ([]byte, error) {
	if d == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(d))
}
