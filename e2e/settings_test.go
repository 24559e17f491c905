package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/settings"
)

// The generated documentation of the settings matches the programs.
func TestSettings_AreDocumented(t *testing.T) {
	files, err := settings.Files(t.Context(), "..", filepath.Dir(shared(t).Authserver()))
	must(t, err)
	if len(files) < 2 {
		t.Fatalf("%d files", len(files))
	}
	for path, want := range files {
		if content, err := os.ReadFile(filepath.Join("..", path)); err != nil || string(content) != want {
			t.Errorf("%s is out of date (%v): run make generate", path, err)
		}
	}
}

func TestSettings_CheckConfig(t *testing.T) {
	folder := filepath.Dir(shared(t).Authserver())
	key := filepath.Join(t.TempDir(), "keys")
	file := filepath.Join(t.TempDir(), "settings")
	err := errors.Join(
		os.WriteFile(key, []byte("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n"), 0o600),
		os.WriteFile(
			file,
			[]byte("ALMONER_BASE_URL=https://api.example.org\n"+"ALMONER_APP_URL='https://app.example.org'\n"+
				"ALMONER_DATABASE_URL=postgres://a:hush@localhost/a\n"+
				"OTEL_EXPORTER_OTLP_HEADERS=Authorization=hush\n"),
			0o600,
		),
	)
	must(t, err)
	for _, program := range []string{"authserver", "resourceapi"} {
		run := func(environ []string, arguments ...string) (out, errs string, code int) {
			t.Helper()
			command := exec.CommandContext(t.Context(), filepath.Join(folder, program), arguments...)
			command.Env = environ
			var outBuffer, errBuffer strings.Builder
			command.Stdout, command.Stderr = &outBuffer, &errBuffer
			if _, exited := errors.AsType[*exec.ExitError](command.Run()); command.ProcessState == nil ||
				exited != (command.ProcessState.ExitCode() != 0) {
				t.Fatalf("%s does not run", program)
			}
			if strings.Contains(outBuffer.String()+errBuffer.String(), "hush") {
				t.Errorf("%s prints a secret", program)
			}
			return outBuffer.String(), errBuffer.String(), command.ProcessState.ExitCode()
		}
		good := []string{"ALMONER_KEYS_FILE=" + key, "ALMONER_REDIS_URL=redis://:hush@localhost:6379"}
		out, errs, code := run(good, "check-config", "--config", file)
		for _, want := range []string{
			`ALMONER_BASE_URL +https://api.example.org +config ` + file,
			`ALMONER_KEYS +\(set\) +file ` + key,
			`ALMONER_REDIS_URL +\(set\) +environment`,
			`ALMONER_NOTICE +4s +default`,
			`OTEL_EXPORTER_OTLP_HEADERS +\(set\) +config ` + file,
			`OTEL_TRACES_SAMPLER_ARG +1 +default`,
		} {
			if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(out) {
				t.Errorf("%s does not print %s: %s", program, want, out)
			}
		}
		if code != 0 || errs != "" {
			t.Errorf("%s: %d %s", program, code, errs)
		}
		bad := append(good, "ALMONER_KEYS=hush", "ALMONER_CONFIG="+file, "ALMONER_NOTICE=hush",
			"ALMONER_DATABSE_URL=hush", "OTEL_TRACES_SAMPLER_ARG=hush")
		for _, arguments := range [][]string{{"check-config"}, {"serve"}} {
			out, errs, code = run(bad, arguments...)
			for _, want := range []string{
				"4 mistakes", "ALMONER_KEYS and ALMONER_KEYS_FILE are both set", "ALMONER_NOTICE must be a duration",
				"did you mean ALMONER_DATABASE_URL?", "OTEL_TRACES_SAMPLER_ARG must be a number",
			} {
				if code != 1 || out != "" || !strings.Contains(errs, want) {
					t.Errorf("%s %s does not print %s: %d %s%s", program, arguments, want, code, out, errs)
				}
			}
		}
		if _, errs, code := run([]string{"ALMONER_DATABSE_URL=hush"}, "migrate"); code != 1 ||
			!strings.Contains(errs, "2 mistakes") {
			t.Errorf("%s migrate: %d %s", program, code, errs)
		}
	}
}
