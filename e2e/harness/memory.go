package harness

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// PeakMemory returns the peak resident memory of a process, in KiB (proc(5), VmHWM).
func PeakMemory(t testing.TB, pid int) int {
	t.Helper()
	return statusOf(t, pid, "VmHWM:")
}

// ResidentMemory returns the current resident memory of a process, in KiB (VmRSS).
func ResidentMemory(t testing.TB, pid int) int {
	t.Helper()
	return statusOf(t, pid, "VmRSS:")
}

func statusOf(t testing.TB, pid int, name string) int {
	t.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var kib int
	_, line, _ := strings.Cut(string(content), name)
	if _, err := fmt.Sscan(line, &kib); err != nil {
		t.Fatalf("no %s of process %d: %v", name, pid, err)
	}
	return kib
}
