package services

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

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
