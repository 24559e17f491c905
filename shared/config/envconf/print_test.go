package envconf

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestPrint_OmitsSecrets(t *testing.T) {
	reading, err := Load(
		&config{},
		[]string{"ALMONER_KEY=hush", "ALMONER_LIMIT_FILE=" + write(t, "7"), "ALMONER_ADDRESS=a\nb"},
	)
	must(t, err)
	reading.Warnings = []string{"look here"}
	var text, object strings.Builder
	must(t, errors.Join(reading.Print(&text, false), reading.Print(&object, true)))
	var lines []string
	for line := range strings.Lines(text.String()) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	expect(t, lines, "ALMONER_LISTEN 127.0.0.1:8081 default", "ALMONER_KEY (set) environment",
		"ALMONER_LIMIT 7 file "+reading.Values[2].Path, "ALMONER_WAIT 2s default", "ALMONER_ON false default",
		`ALMONER_ADDRESS "a\nb" environment`, "warning: look here")
	var got struct {
		OK                 bool
		Settings           []Value
		Mistakes, Warnings []string
	}
	if err := json.Unmarshal([]byte(object.String()), &got); err != nil || !got.OK ||
		!slices.Equal(got.Settings, reading.Values) || len(got.Mistakes) != 0 || len(got.Warnings) != 1 {
		t.Errorf("%v %s", err, object.String())
	}
	if strings.Contains(text.String()+object.String(), "hush") {
		t.Error("a secret is printed")
	}
}

func TestPrint_OmitsSettingsWithMistakes(t *testing.T) {
	reading, err := Load(&config{}, []string{"ALMONER_KEY=hush", "ALMONER_LIMIT=hush"})
	var text, object strings.Builder
	if err == nil || reading.Print(&text, false) != nil || text.String() != "" {
		t.Errorf("%v %s", err, text.String())
	}
	if reading.Print(&object, true) != nil ||
		!strings.Contains(object.String(), `"ALMONER_LIMIT must be a whole number"`) ||
		!strings.Contains(object.String(), `"ok": false`) || strings.Contains(object.String(), "hush") {
		t.Error(object.String())
	}
}

func TestPrintSettings(t *testing.T) {
	var out strings.Builder
	must(t, PrintSettings(&out, Describe(config{}), false))
	for _, want := range []string{
		"ALMONER_LISTEN (default: 127.0.0.1:8081)\n    Where to listen.\n", "ALMONER_KEY (required, secret)\n",
		"ALMONER_ON (optional)\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q lacks %q", out.String(), want)
		}
	}
}
