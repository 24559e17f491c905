package rest

import (
	"encoding/json"
	"testing"
	"time"
)

func TestFormatTime_HasSixDecimalsInUTC(t *testing.T) {
	zone := time.FixedZone("", 2*3600)
	for want, at := range map[string]time.Time{
		"2026-11-01T07:00:00.000000Z": time.Date(2026, 11, 1, 9, 0, 0, 0, zone),
		"2026-11-01T07:00:00.120000Z": time.Date(2026, 11, 1, 7, 0, 0, 120_000_000, time.UTC),
		"2026-11-01T07:00:00.123456Z": time.Date(2026, 11, 1, 7, 0, 0, 123_456_789, time.UTC),
		"0001-01-01T00:00:00.000000Z": {},
	} {
		if got := FormatTime(at); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		content, err := json.Marshal(struct {
			At   Time
			Then *Time
			None *Time
		}{Time(at), TimePointer(&at), TimePointer(nil)})
		if err != nil || string(content) != `{"At":"`+want+`","Then":"`+want+`","None":null}` {
			t.Errorf("%s %v", content, err)
		}
	}
}

func TestParseTime_AcceptsOnlyRFC3339(t *testing.T) {
	for text, want := range map[string]string{
		"2026-11-01T09:00:00Z":                "2026-11-01T09:00:00.000000Z",
		"2026-11-01T09:00:00.5+02:00":         "2026-11-01T07:00:00.500000Z",
		"2026-11-01T09:00:00.123456Z":         "2026-11-01T09:00:00.123456Z",
		"2026-11-01T09:00:00.123456000000Z":   "2026-11-01T09:00:00.123456Z",
		"0001-01-01t00:00:00z":                "0001-01-01T00:00:00.000001Z",
		"2026-11-01T09:00:00.123456001-00:00": "2026-11-01T09:00:00.123457Z", // what is at …456 is earlier
	} {
		if got, err := ParseTime(text); err != nil || FormatTime(got) != want {
			t.Errorf("%s: %s %v", text, FormatTime(got), err)
		}
	}
	for _, text := range []string{
		"", "2026-11-01", "2026-11-01T09:00:00", "2026-11-01 09:00:00Z", "2026-11-01T09:00:00 02:00",
		"2026-11-01T9:00:00Z", "2026-11-01T09:00:00,5Z", "2026-02-30T09:00:00Z", "1762000000", "now",
		"0000-01-01T00:00:00Z", "9999-12-31T23:59:59-01:00", "2026-11-01T09:00:00Z\n", "2026-11-01T09:00:00+25:00",
	} {
		if got, err := ParseTime(text); err == nil {
			t.Errorf("%q is read as %s", text, FormatTime(got))
		}
	}
}

func FuzzParseTime(f *testing.F) {
	f.Add("2026-11-01T09:00:00.123456789+02:00")
	f.Fuzz(func(t *testing.T, text string) {
		at, err := ParseTime(text)
		if err != nil {
			return
		}
		if again, err := ParseTime(FormatTime(at)); err != nil || !again.Equal(at) {
			t.Errorf("%q: %s, then %s %v", text, at, again, err)
		}
	})
}
