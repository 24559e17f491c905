package programme

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"
)

var (
	workspaceID = uuid.MustParse("0190c5d2-7f3a-7c11-9d0e-1a2b3c4d5e6f")
	other       = uuid.MustParse("0190c5d2-7f3a-7c11-9d0e-1a2b3c4d5e70")
)

func newCursors(t testing.TB, fill byte) *rest.Cursors {
	t.Helper()
	cursors, err := rest.NewCursors(seal.NewKeys([]byte(strings.Repeat(string(fill), 32))), CursorPurpose)
	if err != nil {
		t.Fatal(err)
	}
	return cursors
}

func TestP4_CursorOpensOnlyForItsList(t *testing.T) {
	cursors := newCursors(t, 'a')
	filter := Filter{Status: Active, Search: "homes"}
	want := rest.Position{CreatedAt: time.Date(2026, 3, 1, 9, 0, 0, 123456000, time.UTC), ID: other}
	before1970 := rest.Position{CreatedAt: time.Date(1969, 12, 31, 23, 59, 59, 999999000, time.UTC), ID: other}
	for _, position := range []rest.Position{want, before1970} {
		text := SealCursor(cursors, position, workspaceID, filter)
		if got, ok := OpenCursor(cursors, text, workspaceID, filter); !ok || got != position {
			t.Errorf("%v, %v, want %v", got, ok, position)
		}
		if text == SealCursor(cursors, position, workspaceID, filter) {
			t.Error("two cursors of one position are equal, so they reveal that it is the same")
		}
	}
	for name, c := range map[string]struct {
		key            byte
		workspaceID    uuid.UUID
		sealed, opened Filter
	}{
		"another workspace":  {'a', other, filter, filter},
		"another key":        {'b', workspaceID, filter, filter},
		"another status":     {'a', workspaceID, filter, Filter{Status: Draft, Search: "homes"}},
		"another search":     {'a', workspaceID, filter, Filter{Status: Active, Search: "home"}},
		"no filter":          {'a', workspaceID, filter, Filter{}},
		"the search alone":   {'a', workspaceID, filter, Filter{Search: "homes"}},
		"the status alone":   {'a', workspaceID, filter, Filter{Status: Active}},
		"a status more":      {'a', workspaceID, Filter{Search: "homes"}, filter},
		"a search more":      {'a', workspaceID, Filter{Status: Active}, filter},
		"search for status":  {'a', workspaceID, Filter{Search: "draft"}, Filter{Status: Draft}},
		"status for search":  {'a', workspaceID, Filter{Status: Draft}, Filter{Search: "draft"}},
		"status, not search": {'a', workspaceID, Filter{Search: "homes"}, Filter{Status: Active}},
	} {
		text := SealCursor(cursors, want, workspaceID, c.sealed)
		if _, ok := OpenCursor(newCursors(t, c.key), text, c.workspaceID, c.opened); ok {
			t.Errorf("%s: opened", name)
		}
	}
}

// FuzzQuery checks that a query string is either refused or read as net/url would read it.
func FuzzQuery(f *testing.F) {
	cursors := newCursors(f, 'a')
	good := SealCursor(cursors, rest.Position{CreatedAt: time.UnixMicro(1), ID: other}, workspaceID, Filter{})
	for _, seed := range []string{
		"", "limit=5", "limit=0", "limit=201", "limit=5&limit=6", "limit=%zz", "status=active", "status=x", "q=homes",
		"q=%ff", "q=%00", "cursor=", "cursor=x", "cursor=" + good, "cursor=" + good + "&q=x", "a;b", "&&=&", "LIMIT=0",
		"li%6dit=7", "limit=99999999999999999999", "q=+a+", "q=a%26b",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		query, err := ReadQuery(raw, workspaceID, cursors)
		values, plainErr := url.ParseQuery(raw)
		if err != nil {
			if _, blames := errors.AsType[rest.Problems](err); !blames {
				t.Errorf("%q: %v, want rest.Problems", raw, err)
			}
			return
		}
		if query.Limit < 1 || query.Limit > rest.MaxLimit || query.WorkspaceID != workspaceID {
			t.Errorf("%q: %+v", raw, query)
		}
		if plainErr != nil { // net/url also refuses parameters that are ignored here
			return
		}
		for _, name := range []string{"cursor", "limit", "status", "q"} {
			if len(values[name]) > 1 {
				t.Errorf("%q: %s twice", raw, name)
			}
		}
		if string(query.Filter.Status) != values.Get("status") || query.Filter.Search != values.Get("q") ||
			(query.After != nil) != values.Has("cursor") {
			t.Errorf("%q: %+v", raw, query)
		}
		if _, known := ParseStatus(string(query.Filter.Status)); query.Filter.Status != "" && !known {
			t.Errorf("%q: %+v", raw, query)
		}
	})
}

// FuzzCursor checks that only the one sealed position, which is among the seeds, can be opened.
func FuzzCursor(f *testing.F) {
	cursors := newCursors(f, 'a')
	sealed := rest.Position{CreatedAt: time.UnixMicro(1).UTC(), ID: other}
	good := SealCursor(cursors, sealed, workspaceID, Filter{})
	for _, seed := range []string{"", "x", good, good[1:], good + "=", good + "\n", strings.ToUpper(good)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got, ok := OpenCursor(cursors, text, workspaceID, Filter{}); ok && got != sealed {
			t.Errorf("%q opened: %v", text, got)
		}
		if got, ok := OpenCursor(cursors, text, other, Filter{}); ok {
			t.Errorf("%q opened for another workspace: %v", text, got)
		}
	})
}

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
