package systemd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/deploy/checks/internal/product"
)

// exposed is the most that systemd-analyze security may find, in tenths of its points from 0.0 (safe) to 10.0. What is
// left is that a service opens connections and ports, to any address: 1.1 with systemd 252. Later versions ask for
// more.
const exposed = "20"

// oldest is the first systemd-analyze that judges files.
const oldest = 250

// version is that of "systemd 252 (252.39-1)".
func version(t *testing.T, program string) int {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	var number int
	if _, err := fmt.Sscanf(string(out), "systemd %d", &number); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	return number
}

func TestSystemdAnalyzeFindsNothing(t *testing.T) {
	program, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed: the units are judged by the other tests alone")
	}
	if found := version(t, program); found < oldest {
		t.Skipf("systemd-analyze %d does not judge files: the units are judged by the other tests alone", found)
	}
	dir, units := t.TempDir(), []string{}
	binaries := filepath.Dir(product.Command{Binary: "authserver"}.Path(t)) + "/"
	for _, s := range services(t) {
		content, err := os.ReadFile(filepath.Join(folder(), s.file))
		if err != nil {
			t.Fatal(err)
		}
		units = append(units, filepath.Join(dir, s.file))
		moved := strings.ReplaceAll(string(content), programs, binaries) // it looks whether the program is there
		if err := os.WriteFile(filepath.Join(dir, s.file), []byte(moved), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(t.Context(), program, append([]string{
		"verify",
		"--man=no",
		"--recursive-errors=no",
	}, units...)...).
		CombinedOutput()
	if err != nil || strings.Contains(string(out), dir) { // it may have a word to say about others of this machine
		t.Errorf("verify: %v\n%s", err, out)
	}
	for _, path := range units {
		out, err := exec.CommandContext(t.Context(), program, "security", "--offline=true", "--no-pager", "--threshold="+exposed, path).
			CombinedOutput()
		if err != nil {
			t.Errorf("security of %s: %v\n%s", filepath.Base(path), err, out)
		}
	}
}
