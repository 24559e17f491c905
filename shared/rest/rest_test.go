package rest

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// FuzzBearer checks that BearerToken accepts only a single token of the b64token alphabet and returns it unchanged.
func FuzzBearer(f *testing.F) {
	for _, seed := range []string{
		"", "Bearer", "Bearer ", "Bearer x", "bearer x", "BEARER   x==", "Bearer x y", "Bearer x,y", "Basic x",
		"Bearer\tx", "Bearer =", "Bearer x=y", "Bearer \x00", "x",
	} {
		f.Add(seed, "", false)
	}
	f.Add("Bearer x", "Bearer y", true)
	f.Fuzz(func(t *testing.T, first, second string, both bool) {
		h := http.Header{"Authorization": {first}}
		if both {
			h.Add("Authorization", second)
		}
		token, err := BearerToken(h)
		if err != nil {
			if token != "" || !errors.Is(err, ErrNoToken) && !errors.Is(err, ErrMalformedToken) {
				t.Errorf("returned %d characters of a token with the error %v", len(token.Reveal()), err)
			}
			return
		}
		text := token.Reveal()
		if both || len(first) < 8 || !strings.EqualFold(first[:7], "bearer ") || !strings.HasSuffix(first, " "+text) {
			t.Errorf("%q gave %q", first, text)
		}
		if text == "" || strings.ContainsAny(text, " \t\r\n,;\"\\") ||
			strings.Contains(strings.TrimRight(text, "="), "=") {
			t.Errorf("%q gave %q", first, text)
		}
		if strings.TrimLeft(first[6:], " ") != text {
			t.Errorf("%q gave %q, which is not the whole token", first, text)
		}
	})
}

func TestFields_SelectsInOrderOfRecord(t *testing.T) {
	known := FieldsOf[struct {
		ID    string `json:"id"`
		Name  string `json:"name"`
		Extra *int   `json:"extra,omitempty"`
	}]()
	if !slices.Equal(known, []string{"id", "name", "extra"}) {
		t.Fatal(known)
	}
	for raw, want := range map[string][]string{
		"":                     nil,
		"fields=id":            {"id"},
		"fields=name,id,name":  {"id", "name"},
		"fields=id%2Cextra":    {"id", "extra"},
		"limit=3&fields=extra": {"extra"},
	} {
		p := ReadParameters(raw, "fields", "limit")
		if got := p.Fields(known); !slices.Equal(got, want) || len(p.Problems) > 0 {
			t.Errorf("%q: %v, %v", raw, got, p.Problems)
		}
	}
	for _, raw := range []string{"fields=", "fields=id,", "fields=ID", "fields=id,other", "fields=id&fields=id",
		"fields=%zz", "fields= id"} {
		p := ReadParameters(raw, "fields")
		p.Fields(known)
		problem := p.Problems["fields"]
		if problem == "" || strings.Contains(raw, "other") != strings.Contains(problem, `"other"`) {
			t.Errorf("%q: the problem is %q", raw, problem)
		}
	}
}

func TestProject_KeepsBytesOfValues(t *testing.T) {
	record := `{"id":"1","name":"a<b\u2028","n":1.50,"none":null,"deep":{"x":[1,2]}}`
	got, err := Project([]byte("["), []byte(record), []string{"name", "n", "none", "deep", "absent"})
	if want := `[{"name":"a<b\u2028","n":1.50,"none":null,"deep":{"x":[1,2]}}`; err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
}

func TestAnnounce_AppliesOnlyToDeprecatedOperations(t *testing.T) {
	table := Deprecations{{
		Method: "GET",
		Path:   "/v1/things/{id}",
		Since:  time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC),
		Sunset: time.Date(2027, 7, 1, 0, 0, 0, 0, time.UTC),
		Link:   "https://api.example.org/v1/docs#things",
	}}
	for _, c := range []struct {
		method, path string
		announced    bool
	}{
		{"GET", "/v1/things/{id}", true},
		{"HEAD", "/v1/things/{id}", true},
		{"DELETE", "/v1/things/{id}", false},
		{"GET", "/v1/things", false},
	} {
		h := http.Header{}
		table.Announce(h, c.method, c.path)
		if !c.announced {
			if len(h) != 0 {
				t.Errorf("%s %s: %v", c.method, c.path, h)
			}
			continue
		}
		if h.Get("Deprecation") != "@1798761600" || h.Get("Sunset") != "Thu, 01 Jul 2027 00:00:00 GMT" ||
			h.Get("Link") != `<https://api.example.org/v1/docs#things>; rel="deprecation"; type="text/html"` {
			t.Errorf("%s %s: %v", c.method, c.path, h)
		}
	}
}

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
