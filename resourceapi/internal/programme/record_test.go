package programme

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
)

// FuzzRecord checks that AppendRecord writes the same bytes as package web.
func FuzzRecord(f *testing.F) {
	f.Add("Warm Homes", "Advice", int64(1772355600123456), int64(20000), true)
	f.Add("", "\x00\x1f\x7f\u2028<&>\"\\\xff", int64(-1), int64(-1), false)
	f.Add("Школа", "a\nb\tc", int64(0), int64(0), true)
	f.Fuzz(func(t *testing.T, name, summary string, micros, day int64, dated bool) {
		if micros < -6e16 || micros > 2.5e17 || day < -700_000 || day > 2_900_000 { // years 0001 to 9999
			return
		}
		p := Programme{
			ID:        uuid.NewSHA1(uuid.Nil, []byte(name)),
			Details:   Details{Name: name, Summary: summary, Status: Active},
			CreatedAt: time.UnixMicro(micros),
			UpdatedAt: time.UnixMicro(micros + 1),
		}
		var startsOn *string
		if dated {
			at := time.Unix(day*86400, 0)
			p.StartsOn, startsOn = DateOf(at), new(at.UTC().Format(time.DateOnly))
		}
		want, err := web.EncodeJSON(struct {
			ID        uuid.UUID `json:"id"`
			Name      string    `json:"name"`
			Summary   string    `json:"summary"`
			Status    Status    `json:"status"`
			StartsOn  *string   `json:"startsOn"`
			EndsOn    *string   `json:"endsOn"`
			CreatedAt rest.Time `json:"createdAt"`
			UpdatedAt rest.Time `json:"updatedAt"`
		}{p.ID, name, summary, p.Status, startsOn, nil, rest.Time(p.CreatedAt), rest.Time(p.UpdatedAt)})
		if err != nil {
			t.Fatal(err)
		}
		if got := AppendRecord(nil, p); string(got) != string(want) {
			t.Errorf("%s\nwant %s", got, want)
		}
	})
}
