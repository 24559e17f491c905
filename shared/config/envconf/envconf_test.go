package envconf

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var must = testkit.Must

type config struct {
	Listen  string            `env:"ALMONER_LISTEN" envDefault:"127.0.0.1:8081" doc:"Where to listen."`
	Key     credential.Secret `env:"ALMONER_KEY,required,notEmpty" doc:"A key."`
	Limit   int               `env:"ALMONER_LIMIT" envDefault:"5" doc:"A number."`
	Wait    time.Duration     `env:"ALMONER_WAIT" envDefault:"2s" doc:"A time."`
	On      bool              `env:"ALMONER_ON" doc:"A switch."`
	Address string            `env:"ALMONER_ADDRESS" doc:"Default: follows Listen."`
}

func (c *config) Check() []error {
	var mistakes []error
	if c.Limit < 1 {
		mistakes = append(mistakes, errors.New("ALMONER_LIMIT is 1 or more"))
	}
	if c.Key == "" {
		mistakes = append(mistakes, errors.New("ALMONER_KEY is 32 bytes"))
	}
	if strings.HasPrefix(c.Listen, ":") {
		mistakes = append(mistakes, errors.New("ALMONER_LISTEN names an address"))
	}
	return mistakes
}

func (c *config) Complete() {
	if c.Address == "" {
		c.Address = "http://" + c.Listen
	}
}

// write makes a file that only its owner can read, and returns its path.
func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// mistakes loads a config that has mistakes, and checks that no value is quoted: each value contains "hush".
func mistakes(t *testing.T, environ ...string) []string {
	t.Helper()
	reading, err := Load(&config{}, environ)
	all, ok := errors.AsType[Mistakes](err)
	if !ok || !slices.Equal(all, reading.Mistakes) {
		t.Fatalf("%v, %v", err, reading.Mistakes)
	}
	if strings.Contains(err.Error(), "hush") {
		t.Errorf("error quotes a value: %v", err)
	}
	return all
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestLoad_ReportsAllMistakesWithoutValues(t *testing.T) {
	expect(t, mistakes(t, "ALMONER_LIMIT=hush", "ALMONER_WAIT=5hush", "ALMONER_ON=hush", "ALMONER_LISTEN=:hush"),
		"ALMONER_KEY is not set", "ALMONER_LIMIT must be a whole number",
		"ALMONER_WAIT must be a duration with a unit, like 90s, 5m or 12h", "ALMONER_ON must be true or false",
		"ALMONER_LISTEN names an address") // and none of them twice
	if err := error(Mistakes{"one", "two"}); err.Error() != "2 mistakes in the settings:\n  one\n  two" {
		t.Error(err)
	}
}

func TestAdvice_NamesConfigOnlyIfItHelps(t *testing.T) {
	var c config
	_, missing := Load(&c, nil)
	_, wrong := Load(&c, []string{"ALMONER_KEY=k", "ALMONER_LIMIT=x"})
	for _, one := range []struct {
		err     error
		environ []string
		want    bool
	}{
		{missing, nil, true},
		{missing, []string{"ALMONER_CONFIG="}, true},
		{missing, []string{"ALMONER_CONFIG=settings.env"}, false},
		{wrong, nil, false},
	} {
		if got := strings.Contains(Advice(one.err, one.environ), "--config FILE"); got != one.want {
			t.Errorf("%v with %v: advice is %t, want %t", one.err, one.environ, got, one.want)
		}
	}
}

func TestLoad_EmptyValueSelectsDefault(t *testing.T) {
	var c config
	if _, err := Load(&c, []string{
		"ALMONER_KEY=k", "ALMONER_LISTEN=", "ALMONER_LIMIT=", "ALMONER_CONFIG=", "ALMONER_LISTEN_FILE=",
	}); err != nil || c.Listen != "127.0.0.1:8081" || c.Limit != 5 {
		t.Errorf("%+v, %v", c, err)
	}
	expect(t, mistakes(t, "ALMONER_KEY="), "ALMONER_KEY is not set")
}

func TestLoad_ReadsValueFromFile(t *testing.T) {
	for content, want := range map[string]credential.Secret{
		"word":            "word",
		"word\n":          "word",
		"word\r\n":        "word",
		" two words \n\n": " two words \n",
	} {
		var c config
		if _, err := Load(&c, []string{
			"ALMONER_KEY_FILE=" + write(t, content), "ALMONER_LIMIT_FILE=" + write(t, "7\n"),
		}); err != nil || c.Key != want || c.Limit != 7 {
			t.Errorf("%q: %q, %d, %v", content, c.Key.Reveal(), c.Limit, err)
		}
	}
}

func TestLoad_ReportsMistakesOfValueFiles(t *testing.T) {
	good, folder := write(t, "hush"), t.TempDir()
	for name, c := range map[string]struct {
		environ []string
		want    string
	}{
		"both": {
			[]string{"ALMONER_KEY=hush", "ALMONER_KEY_FILE=" + good},
			"ALMONER_KEY and ALMONER_KEY_FILE are both set: set only one",
		},
		"missing": {
			[]string{"ALMONER_KEY_FILE=" + folder + "/hush"},
			"ALMONER_KEY_FILE names a file that cannot be read: no such file or directory",
		},
		"a folder": {
			[]string{"ALMONER_KEY_FILE=" + folder},
			"ALMONER_KEY_FILE names a file that cannot be read: is a directory",
		},
		"empty": {[]string{"ALMONER_KEY_FILE=" + write(t, "\n")}, "ALMONER_KEY_FILE names a file that is empty"},
		"too large": {
			[]string{"ALMONER_KEY_FILE=" + write(t, strings.Repeat("h", maxFile+1))},
			"ALMONER_KEY_FILE names a file that is larger than 1048576 bytes",
		},
		"no text": {
			[]string{"ALMONER_KEY_FILE=" + write(t, "hush\x00")},
			"ALMONER_KEY_FILE names a file that is not text",
		},
		"unknown": {
			[]string{"ALMONER_KEY=k", "ALMONER_KYE_FILE=" + good},
			"ALMONER_KYE_FILE is not a known setting: did you mean ALMONER_KEY_FILE?",
		},
	} {
		t.Run(name, func(t *testing.T) { expect(t, mistakes(t, c.environ...), c.want) })
	}
	var c config
	if _, err := Load(&c, []string{"ALMONER_KEY_FILE=" + write(t, strings.Repeat("h", maxFile))}); err != nil ||
		len(c.Key) != maxFile {
		t.Error(err)
	}
}

func TestLoad_EnvironmentOverridesSettingsFile(t *testing.T) {
	path := write(t, "# ours\nALMONER_KEY=file\nexport ALMONER_LIMIT = 7 # "+
		"seven\nALMONER_LISTEN='$HOME#1'\nALMONER_WAIT=\n\nPGHOST=ours\r\n")
	var c config
	reading, err := Load(&c, []string{"ALMONER_CONFIG=" + path, "ALMONER_KEY=environment", "HOME=hush"})
	if err != nil || c.Key != "environment" || c.Limit != 7 || c.Listen != "$HOME#1" || c.Wait != 2*time.Second {
		t.Fatalf("%+v %v", c, err)
	}
	want := []Value{
		{Setting: "ALMONER_LISTEN", Value: "$HOME#1", Set: true, From: FromConfig, Path: path},
		{Setting: "ALMONER_KEY", Secret: true, Set: true, From: FromEnvironment},
		{Setting: "ALMONER_LIMIT", Value: "7", Set: true, From: FromConfig, Path: path},
		{Setting: "ALMONER_WAIT", Value: "2s", Set: true, From: FromDefault},
		{Setting: "ALMONER_ON", Value: "false", Set: true, From: FromDefault},
		{Setting: "ALMONER_ADDRESS", Value: "http://$HOME#1", Set: true, From: FromDefault},
	}
	if !slices.Equal(reading.Values, want) {
		t.Errorf("%+v", reading.Values)
	}
	// NAME in the environment overrides NAME_FILE in the settings file, and vice versa.
	there := write(t, "ALMONER_KEY_FILE=/nowhere\nALMONER_LIMIT=7\n")
	if _, err := Load(&c, []string{
		"ALMONER_CONFIG=" + there, "ALMONER_KEY=k", "ALMONER_LIMIT_FILE=" + write(t, "8"),
	}); err != nil || c.Limit != 8 {
		t.Errorf("%d, %v", c.Limit, err)
	}
	reading, err = Load(&c, []string{"ALMONER_CONFIG=" + write(t, "ALMONER_KEY_FILE="+write(t, "k"))})
	if err != nil || reading.Values[1].From != FromFile || reading.Values[1].Path == "" {
		t.Errorf("%+v, %v", reading, err)
	}
}

func TestLoad_ReportsMistakesOfSettingsFile(t *testing.T) {
	path := write(t, strings.Join([]string{
		"ALMONER_KEY=hush", "hush", "ALMONER_ON='hush", `ALMONER_ON="hush`, "hu-sh=1", "ALMONER_LISTEN=hush#hush",
		"ALMONER_LIMTI=1", "ALMONER_KEY=hush", "ALMONER_CONFIG=hush", "ALMONER_SOMETHING=hush", "ALMONER_ON=hush",
		"ALMONER_PORT=tcp://hush",
	}, "\n"))
	expect(t, mistakes(t, "ALMONER_CONFIG="+path),
		"ALMONER_CONFIG names a file whose line 2 is not NAME=value: missing =",
		"ALMONER_CONFIG names a file whose line 3 is not NAME=value: unmatched '",
		`ALMONER_CONFIG names a file whose line 4 is not NAME=value: unmatched "`,
		"ALMONER_CONFIG names a file whose line 5 is not NAME=value: unexpected character",
		"ALMONER_CONFIG names a file whose line 6 has a # in its value: put the value in single quotes",
		"ALMONER_CONFIG names a file whose line 8 sets ALMONER_KEY a second time",
		"ALMONER_CONFIG must be set in the environment or by --config, not in the settings file",
		"ALMONER_LIMTI is not a known setting in the settings file: did you mean ALMONER_LIMIT?",
		"ALMONER_PORT is not a known setting in the settings file",
		"ALMONER_SOMETHING is not a known setting in the settings file", "ALMONER_ON must be true or false")
	expect(t, mistakes(t, "ALMONER_KEY=k", "ALMONER_CONFIG=/hush"),
		"ALMONER_CONFIG names a file that cannot be read: no such file or directory")
}

func TestLoad_ReportsUnknownNames(t *testing.T) {
	expect(
		t,
		mistakes(t, "ALMONER_KEY=k", "ALMONER_DATABASE_ULR=hush", "ALMONER_=hush", "ALMONER_ELEPHANT=hush",
			"ALMONER_PORT=9000", "almoner_key=hush"),
		"ALMONER_ is not a known setting",
		"ALMONER_DATABASE_ULR is not a known setting: did you mean ALMONER_DATABASE_URL?",
		"ALMONER_ELEPHANT is not a known setting",
		"ALMONER_PORT is not a known setting",
	)
	known := []string{
		"ALMONER_KEY=k",
		"ALMONER_DATABASE_URL=x",
		"ALMONER_WORKER_FILE=/nowhere",
		"ALMONER_TEST_THIS=x",
		"ALMONER_HOME=x",
		"PATH=x",
		// Variables that Kubernetes sets for a Service almoner and for another Service almoner-authserver.
		"ALMONER_SERVICE_HOST=10.0.0.1",
		"ALMONER_SERVICE_PORT=80",
		"ALMONER_SERVICE_PORT_HTTP=80",
		"ALMONER_PORT=tcp://10.0.0.1:80",
		"ALMONER_PORT_80_TCP=tcp://10.0.0.1:80",
		"ALMONER_PORT_80_TCP_PROTO=tcp",
		"ALMONER_PORT_80_TCP_PORT=80",
		"ALMONER_PORT_80_TCP_ADDR=10.0.0.1",
		"ALMONER_AUTHSERVER_SERVICE_HOST=10.0.0.2",
		"ALMONER_AUTHSERVER_PORT=tcp://10.0.0.2:8081",
		"ALMONER_AUTHSERVER_PORT_8081_TCP_PORT=8081",
	}
	if _, err := Load(&config{}, known); err != nil {
		t.Error(err)
	}
}

func TestLoad_WarnsOfWorldReadableSecret(t *testing.T) {
	top := t.TempDir()
	folder := filepath.Join(top, "open")
	path := filepath.Join(folder, "key")
	warnings := func(file, above os.FileMode, environ ...string) []string {
		t.Helper()
		for name, mode := range map[string]os.FileMode{path: file, folder: above} {
			must(t, os.Chmod(name, mode))
		}
		reading, err := Load(&config{}, environ)
		must(t, err)
		return reading.Warnings
	}
	must(t, errors.Join(os.Mkdir(folder, 0o700), os.WriteFile(path, []byte("ALMONER_KEY=1"), 0o600)))
	for above := top; above != "/" && above != os.TempDir(); above = filepath.Dir(above) {
		must(t, os.Chmod(above, 0o755))
	}
	file, own := "ALMONER_KEY_FILE="+path, "ALMONER_CONFIG="+path
	expect(t, warnings(0o644, 0o755, file),
		"ALMONER_KEY_FILE names a file with a secret that every user of this machine can read: run chmod o-rwx on it")
	expect(t, warnings(0o644, 0o755, own),
		"ALMONER_CONFIG names a file with a secret that every user of this machine can read: run chmod o-rwx on it")
	expect(t, warnings(0o644, 0o755, "ALMONER_KEY=k", "ALMONER_LISTEN_FILE="+path)) // no secret
	expect(t, warnings(0o644, 0o755, "ALMONER_KEY=k", own))                         // overridden secret
	expect(t, warnings(0o640, 0o755, file))
	expect(t, warnings(0o644, 0o750, file)) // other users cannot enter the folder
	link := filepath.Join(top, "link")      // as in Kubernetes: the mode of the link does not count
	must(t, os.Symlink(path, link))
	expect(t, warnings(0o644, 0o750, "ALMONER_KEY_FILE="+link))
	if len(warnings(0o644, 0o755, "ALMONER_KEY_FILE="+link)) != 1 {
		t.Error("no warning for a file behind a link")
	}
}

func TestPrint_OmitsSecrets(t *testing.T) {
	reading, err := Load(&config{},
		[]string{"ALMONER_KEY=hush", "ALMONER_LIMIT_FILE=" + write(t, "7"), "ALMONER_ADDRESS=a\nb"})
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
	rest := out.String()
	for _, want := range []string{ // in the order of the struct
		"ALMONER_LISTEN (default: 127.0.0.1:8081)\n    Where to listen.\n", "ALMONER_KEY (required, secret)\n",
		"ALMONER_LIMIT (default: 5)\n    A number.\n", "ALMONER_WAIT (default: 2s)\n", "ALMONER_ON (optional)\n",
		"ALMONER_ADDRESS (optional)\n",
	} {
		_, after, found := strings.Cut(rest, want)
		if !found || strings.Count(out.String(), "ALMONER_") != 6 {
			t.Errorf("%q lacks %q in its place, or has other settings", out.String(), want)
		}
		rest = after
	}
}
