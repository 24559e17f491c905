package harness

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// A MemoryGroup is a control group whose processes the kernel ends when they want more memory than the limit, as it
// does under systemd and Kubernetes.
type MemoryGroup struct{ dir string }

// hierarchy is where control groups are made, and the files of a group that bound its memory and its swap.
type hierarchy struct{ root, limit, swap, swapAtMost string }

// NewMemoryGroup makes a group with a limit in bytes, and removes it when the test ends. Make it before the stack, so
// that it is empty by then. The group is nil where the kernel does not let this process make one.
func NewMemoryGroup(t testing.TB, limit int) *MemoryGroup {
	t.Helper()
	bytes := strconv.Itoa(limit)
	_ = os.WriteFile(
		"/sys/fs/cgroup/cgroup.subtree_control",
		[]byte("+memory"),
		0,
	) // version 2, where it is ours to say
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
		_ = os.WriteFile(
			filepath.Join(dir, h.swap),
			[]byte(h.swapAtMost),
			0,
		) // absent where the kernel does not count swap
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil {
				t.Errorf("the control group stays: %v", err)
			}
		})
		return &MemoryGroup{dir}
	}
	return nil
}

// Through is the command that starts a program in the group (stack.Service.Through).
func (g *MemoryGroup) Through() []string {
	return []string{"/bin/sh", "-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(g.dir, "cgroup.procs")}
}

// ResetPeakMemory lets PeakMemory begin anew, and reports whether the kernel lets us (proc(5), clear_refs).
func ResetPeakMemory(pid int) bool {
	return os.WriteFile("/proc/"+strconv.Itoa(pid)+"/clear_refs", []byte("5"), 0) == nil
}
