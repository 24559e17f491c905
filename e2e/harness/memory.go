package harness

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// PeakMemory is the most memory that a process has had resident so far, in KiB (proc(5), VmHWM).
func PeakMemory(t testing.TB, pid int) int {
	t.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var peak int
	_, line, _ := strings.Cut(string(content), "VmHWM:")
	if _, err := fmt.Sscan(line, &peak); err != nil {
		t.Fatalf("no VmHWM of process %d: %v", pid, err)
	}
	return peak
}
