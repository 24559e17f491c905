package usage

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/rest"
)

// The days of a list are valid and at most 92 apart.
func TestReadDays_AreAtMost92Apart(t *testing.T) {
	now := time.Date(2026, 11, 30, 23, 59, 0, 0, time.FixedZone("", -3600)) // the next day in UTC
	for raw, want := range map[string]string{
		"":                              "2026-11-02 2026-12-01",
		"limit=1":                       "2026-11-02 2026-12-01",
		"to=2026-03-01":                 "2026-01-31 2026-03-01",
		"from=2026-09-01":               "2026-09-01 2026-12-01",
		"from=2026-08-31":               "2026-08-31 2026-12-01",
		"from=2026-08-30":               "from: Must be at most 92 days before to.",
		"from=2026-01-01&to=2026-01-01": "2026-01-01 2026-01-01",
		"from=2026-01-02&to=2026-01-01": "from: Must not be after to.",
		"from=2026-12-02":               "from: Must not be after to.",
		"from=2026-1-1":                 "from: Must be a day: YYYY-MM-DD.",
		"to=0000-12-31":                 "to: Must be a day: YYYY-MM-DD.",
		"to=0001-01-01":                 "0001-01-01 0001-01-01",
		"to=2026-02-30":                 "to: Must be a day: YYYY-MM-DD.",
		"to=":                           "to: Must be a day: YYYY-MM-DD.",
		"to=2026-01-01T00:00:00Z":       "to: Must be a day: YYYY-MM-DD.",
		"to=2026-01-01&to=2026-01-02":   "to: Must be sent only once.",
	} {
		days, err := ReadDays(raw, now)
		got := days.From.Format(time.DateOnly) + " " + days.To.Format(time.DateOnly)
		if problems, invalid := errors.AsType[rest.Problems](err); invalid {
			got = strings.Join(problems.Lines(), "; ")
		}
		if got != want {
			t.Errorf("%q: %s, want %s", raw, got, want)
		}
	}
}
