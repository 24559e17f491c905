package torture

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// A memoryGroup is a control group. The kernel kills its processes when they use more memory than the limit, as it
// does under systemd and Kubernetes.
type memoryGroup struct{ dir string }

// hierarchy is where control groups are created, with the files that limit the memory and swap of a group.
type hierarchy struct{ root, limit, swap, swapLimit string }

// newMemoryGroup creates a group with a limit in bytes and removes it when the test ends. Create it before the stack,
// so that it is empty by then. It returns nil if the kernel does not let this process create one.
func newMemoryGroup(t testing.TB, limit int) *memoryGroup {
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
		return &memoryGroup{dir}
	}
	return nil
}

// Through returns the command that starts a program in the group (stack.Service.Through).
func (m *memoryGroup) Through() []string {
	return []string{"/bin/sh", "-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(m.dir, "cgroup.procs")}
}

// resetPeakMemory resets the peak of the resident memory of a process and reports whether the kernel allowed it
// (proc(5), clear_refs).
func resetPeakMemory(pid int) bool {
	return os.WriteFile("/proc/"+strconv.Itoa(pid)+"/clear_refs", []byte("5"), 0) == nil
}
