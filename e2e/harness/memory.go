package harness

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
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

// A MemoryGroup is a control group. The kernel kills its processes when they use more memory than the limit, as it
// does under systemd and Kubernetes.
type MemoryGroup struct{ dir string }

// hierarchy is where control groups are created, with the files that limit the memory and swap of a group.
type hierarchy struct{ root, limit, swap, swapLimit string }

// NewMemoryGroup creates a group with a limit in bytes and removes it when the test ends. Create it before the stack,
// so that it is empty by then. It returns nil if the kernel does not let this process create one.
func NewMemoryGroup(t testing.TB, limit int) *MemoryGroup {
	t.Helper()
	bytes := strconv.Itoa(limit)
	// cgroup version 2, if this process may write here
	_ = os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+memory"), 0)
	for _, h := range []hierarchy{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", bytes},
		{"/sys/fs/cgroup", "memory.max", "memory.swap.max", "0"},
	} {
		dir := filepath.Join(h.root, "almoner-"+rand.Text())
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		if os.WriteFile(filepath.Join(dir, h.limit), []byte(bytes), 0) != nil {
			_ = os.Remove(dir)
			continue
		}
		// absent if the kernel does not count swap
		_ = os.WriteFile(filepath.Join(dir, h.swap), []byte(h.swapLimit), 0)
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil {
				t.Errorf("remove the control group: %v", err)
			}
		})
		return &MemoryGroup{dir}
	}
	return nil
}

// Through returns the command that starts a program in the group (stack.Service.Through).
func (m *MemoryGroup) Through() []string {
	return []string{"/bin/sh", "-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(m.dir, "cgroup.procs")}
}

// ResetPeakMemory resets PeakMemory and reports whether the kernel allowed it (proc(5), clear_refs).
func ResetPeakMemory(pid int) bool {
	return os.WriteFile("/proc/"+strconv.Itoa(pid)+"/clear_refs", []byte("5"), 0) == nil
}
