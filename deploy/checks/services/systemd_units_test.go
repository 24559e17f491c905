// These files test deploy/systemd: the contents of its units, the real binaries started as the units say, and the
// report of systemd-analyze if it is installed.

package services

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/hashicorp/go-envparse"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// programs and secrets are the directories that the units use; settings is the file that all of them read.
	programs = "/usr/local/bin/"
	secrets  = "/etc/almoner/secrets/"
	settings = "/etc/almoner/almoner.env"
)

// A service is a unit of deploy/systemd, or one instance of a template.
type service struct {
	file     string // with the instance
	template string // the file in deploy/systemd
	instance string // "" if it is no template
	options  []*unit.UnitOption
}

func folder() string { return filepath.Join(repository(), "deploy", "systemd") }

func services(t *testing.T) []service {
	t.Helper()
	var all []service
	files := map[string]bool{}
	for _, name := range []string{
		"almoner-migrate.service", "authserver@1.service", "authserver@2.service", "resourceapi-worker.service",
		"resourceapi@1.service", "resourceapi@2.service",
	} {
		s := service{file: name, template: name}
		if before, after, template := strings.Cut(name, "@"); template {
			s.instance = strings.TrimSuffix(after, ".service")
			s.template = before + "@.service"
		}
		files[s.template] = true
		content, err := os.ReadFile(filepath.Join(folder(), s.template))
		must(t, err)
		if s.options, err = unit.DeserializeOptions(bytes.NewReader(content)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, s)
	}
	found, err := filepath.Glob(filepath.Join(folder(), "*.service"))
	if err != nil || len(found) != len(files) {
		t.Errorf("there are units without tests: %q", found)
	}
	return all
}

// values returns the values of a directive, in order.
func (s service) values(section, name string) []string {
	var values []string
	for _, o := range s.options {
		if o.Section == section && o.Name == name {
			values = append(values, o.Value)
		}
	}
	return values
}

// value returns the value of a directive that must occur once.
func (s service) value(t *testing.T, name string) string {
	t.Helper()
	values := s.values("Service", name)
	if len(values) != 1 {
		t.Errorf("%s: %s occurs %d times", s.file, name, len(values))
		return ""
	}
	return values[0]
}

// protection holds the sandbox directives of every unit (systemd.exec(5)).
var protection = map[string]string{
	"DynamicUser":             "yes",
	"NoNewPrivileges":         "yes",
	"CapabilityBoundingSet":   "",
	"AmbientCapabilities":     "",
	"ProtectSystem":           "strict",
	"ProtectHome":             "yes",
	"PrivateTmp":              "yes",
	"PrivateDevices":          "yes",
	"PrivateMounts":           "yes",
	"PrivateUsers":            "yes",
	"ProtectClock":            "yes",
	"ProtectControlGroups":    "yes",
	"ProtectHostname":         "yes",
	"ProtectKernelLogs":       "yes",
	"ProtectKernelModules":    "yes",
	"ProtectKernelTunables":   "yes",
	"ProtectProc":             "invisible",
	"RemoveIPC":               "yes",
	"RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
	"RestrictNamespaces":      "yes",
	"RestrictRealtime":        "yes",
	"RestrictSUIDSGID":        "yes",
	"LockPersonality":         "yes",
	"MemoryDenyWriteExecute":  "yes",
	"KeyringMode":             "private",
	"SystemCallArchitectures": "native",
	"SystemCallErrorNumber":   "EPERM",
	"UMask":                   "0077",
}

// others holds the other directives, by section (systemd.unit(5), systemd.service(5), systemd.exec(5),
// systemd.resource-control(5), systemd.kill(5)).
var others = map[string][]string{
	"Unit": {"Description", "Wants", "After"},
	"Service": {
		"Type", "ExecStart", "ExecStartPost", "Environment", "EnvironmentFile", "LoadCredential", "Restart",
		"RestartSec", "TimeoutStartSec", "TimeoutStopSec", "LimitNOFILE", "MemoryMax", "SystemCallFilter",
	},
	"Install": {"WantedBy"},
}

func TestUnits_UseKnownDirectives(t *testing.T) {
	t.Parallel()
	for _, s := range services(t) {
		for _, o := range s.options {
			_, protects := protection[o.Name]
			if !slices.Contains(others[o.Section], o.Name) && (o.Section != "Service" || !protects) {
				t.Errorf("%s: [%s] %s", s.file, o.Section, o.Name)
			}
		}
	}
}

func TestUnits_SandboxTheirProcess(t *testing.T) {
	t.Parallel()
	for _, s := range services(t) {
		for name, want := range protection {
			if got := s.value(t, name); got != want {
				t.Errorf("%s: %s=%s", s.file, name, got)
			}
		}
		if filter := s.values("Service", "SystemCallFilter"); !slices.Equal(filter,
			[]string{"@system-service", "~@privileged @resources"}) {
			t.Errorf("%s: SystemCallFilter=%q", s.file, filter)
		}
	}
}

func TestUnits_RestartOnFailure(t *testing.T) {
	t.Parallel()
	for _, s := range services(t) {
		if s.value(t, "Type") == "oneshot" {
			continue
		}
		if s.value(t, "Type") != "exec" || s.value(t, "Restart") != "on-failure" ||
			len(s.values("Install", "WantedBy")) != 1 {
			t.Errorf("%s: it is not restarted", s.file)
		}
	}
}

// hasTimeToLeave checks that TimeoutStopSec is longer than the time that shutdown takes.
func (s service) hasTimeToLeave(t *testing.T, command, notice string) {
	t.Helper()
	warning, err := time.ParseDuration(notice)
	needs := map[string]time.Duration{
		"serve":  warning + drain + importAtWork,
		"worker": drain + submissionDone,
	}[command]
	if stop, stopErr := time.ParseDuration(s.value(t, "TimeoutStopSec")); err != nil || stopErr != nil ||
		warning == 0 || stop <= needs {
		t.Errorf("%s: killed after %v, but shutdown takes %v (%v, %v)", s.file, stop, needs, err, stopErr)
	}
}

// TestUnits_GOMEMLIMITFitsMemoryLimit checks that GOMEMLIMIT is nine parts in 32 of the memory limit.
func TestUnits_GOMEMLIMITFitsMemoryLimit(t *testing.T) {
	t.Parallel()
	for _, s := range services(t) {
		memory, err := resource.ParseQuantity(s.value(t, "MemoryMax") + "i")
		if err != nil {
			t.Errorf("%s: MemoryMax: %v", s.file, err)
			continue
		}
		fits(t, s.file, s.commands(t, t.TempDir())[0].Environment["GOMEMLIMIT"], memory)
	}
}

// fits checks that GOMEMLIMIT is nine parts in 32 of a memory limit.
func fits(t *testing.T, name, gomemlimit string, memory resource.Quantity) {
	t.Helper()
	collector, err := resource.ParseQuantity(strings.TrimSuffix(gomemlimit, "B"))
	if share := collector.AsApproximateFloat64() / memory.AsApproximateFloat64(); err != nil || share < 0.275 ||
		share > 0.285 {
		t.Errorf("%s: GOMEMLIMIT is %.0f %% of the memory limit (%v)", name, 100*share, err)
	}
}

// commands returns the commands of a unit, with its credentials in a directory.
func (s service) commands(t *testing.T, credentials string) []invocation {
	t.Helper()
	environment := map[string]string{}
	for _, file := range s.values("Service", "EnvironmentFile") {
		if file != settings {
			t.Errorf("%s reads %s", s.file, file)
		}
		content, err := os.ReadFile(filepath.Join(folder(), "almoner.env.example"))
		must(t, err)
		if environment, err = envparse.Parse(bytes.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range s.values("Service", "Environment") {
		for _, pair := range assignments(line) {
			name, value, _ := strings.Cut(pair, "=")
			if _, twice := environment[name]; twice {
				t.Errorf("%s: %s is set twice", s.file, name)
			}
			environment[name] = strings.NewReplacer("%d", credentials, "%i", s.instance).Replace(value)
		}
	}
	var all []invocation
	for _, line := range s.values("Service", "ExecStart") {
		words := strings.Fields(line)
		binary, ok := strings.CutPrefix(words[0], programs)
		if !ok {
			t.Errorf("%s starts %s", s.file, words[0])
		}
		all = append(all, invocation{Binary: binary, Arguments: words[1:], Environment: environment})
	}
	return all
}

// assignments returns the settings in a value of Environment: several, or one with spaces in quotation marks.
func assignments(line string) []string {
	if quoted, ok := strings.CutPrefix(line, `"`); ok {
		return []string{strings.TrimSuffix(quoted, `"`)}
	}
	return strings.Fields(line)
}

// afterStart returns the arguments of the command that systemd runs after the start, whose failure it ignores.
func (s service) afterStart(t *testing.T) []string {
	t.Helper()
	words := strings.Fields(strings.Join(s.values("Service", "ExecStartPost"), " "))
	if len(words) == 0 {
		return nil
	}
	if words[0] != "-"+strings.Fields(s.value(t, "ExecStart"))[0] {
		t.Errorf("%s: ExecStartPost runs %s", s.file, words[0])
	}
	return words[1:]
}

// loaded returns the files of a unit's credentials, relative to secrets, by name.
func (s service) loaded(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, line := range s.values("Service", "LoadCredential") {
		name, file, _ := strings.Cut(line, ":")
		below, ok := strings.CutPrefix(file, secrets)
		if !ok {
			t.Errorf("%s: the credential %s is in %s", s.file, name, file)
		}
		files[name] = below
	}
	return files
}

// TestUnits_MailDropInIsAccepted adds authserver-mail.conf to authserver@1.service, whose program checks the settings.
func TestUnits_MailDropInIsAccepted(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join(folder(), "authserver-mail.conf"))
	must(t, err)
	added, err := unit.DeserializeOptions(bytes.NewReader(content))
	must(t, err)
	all := services(t)
	i := slices.IndexFunc(all, func(s service) bool { return s.file == "authserver@1.service" })
	s := all[i]
	s.options = append(slices.Clone(s.options), added...)
	secrets := map[string]string{
		"authserver-database-url": "postgres://user:password@stores.invalid/almoner",
		"redis-url":               "redis://:password@stores.invalid:6379",
		"authserver-keys":         newKey(),
		"smtp-url":                "smtp://user:password@mail.invalid",
	}
	for _, c := range s.commands(t, s.load(t, secrets)) {
		// check-config shows no secret, and accepts a sender only together with a mail server.
		if from := c.Settings(t, s.file)["ALMONER_MAIL_FROM"]; from != "Almoner <almoner@almoner.example>" {
			t.Errorf("the sender is %q", from)
		}
	}
}

// exposed is the maximum that systemd-analyze security may report, in tenths of its scale from 0.0 (safe) to 10.0. The
// rest, 1.1 with systemd 252, is that a service opens connections and ports, to any address. Later versions report
// more.
const exposed = "20"

// oldest is the first version of systemd-analyze that checks files.
const oldest = 250

// systemdVersion returns the number in "systemd 252 (252.39-1)".
func systemdVersion(t *testing.T, program string) int {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, "--version").Output()
	must(t, err)
	var number int
	if _, err := fmt.Sscanf(string(out), "systemd %d", &number); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	return number
}

func TestUnits_PassSystemdAnalyze(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed: only the other tests check the units")
	}
	if found := systemdVersion(t, program); found < oldest {
		t.Skipf("systemd-analyze %d does not check files: only the other tests check the units", found)
	}
	dir, units := t.TempDir(), []string{}
	binaries := filepath.Dir(invocation{Binary: "authserver"}.Path(t)) + "/"
	for _, s := range services(t) {
		content, err := os.ReadFile(filepath.Join(folder(), s.template))
		must(t, err)
		units = append(units, filepath.Join(dir, s.file))
		moved := strings.ReplaceAll(string(content), programs, binaries) // it checks that the program exists
		must(t, os.WriteFile(filepath.Join(dir, s.file), []byte(moved), 0o600))
	}
	out, err := exec.CommandContext(t.Context(), program, append([]string{
		"verify", "--man=no", "--recursive-errors=no",
	}, units...)...).CombinedOutput()
	if err != nil || strings.Contains(string(out), dir) { // it may report other units of this machine
		t.Errorf("verify: %v\n%s", err, out)
	}
	for _, path := range units {
		security := exec.CommandContext(t.Context(), program, "security", "--offline=true", "--no-pager",
			"--threshold="+exposed, path)
		out, err := security.CombinedOutput()
		if err != nil {
			t.Errorf("security of %s: %v\n%s", filepath.Base(path), err, out)
		}
	}
}
