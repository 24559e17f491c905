package child

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// childrenOf lists the processes whose parent is pid. PostgreSQL's backends leave their parent's process
// group, so a signal to the group would miss them.
func childrenOf(pid int) []int {
	entries, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil
	}
	var children []int
	for _, path := range entries {
		fields := statFields(path)
		if len(fields) < 2 || string(fields[1]) != strconv.Itoa(pid) {
			continue
		}
		if child, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			children = append(children, child)
		}
	}
	return children
}

// WorkingIn lists the running processes whose working directory is dir.
func WorkingIn(dir string) []int {
	there, err := os.Stat(dir)
	if err != nil {
		return nil
	}
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		return nil
	}
	var found []int
	for _, link := range links {
		place, err := os.Stat(link)
		if err != nil || !os.SameFile(place, there) {
			continue // gone, or not accessible
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil && alive(pid) {
			found = append(found, pid)
		}
	}
	return found
}

// WaitGone waits until no running process has this id, and reports whether that happened before ctx ended.
func WaitGone(ctx context.Context, pid int) bool {
	for alive(pid) {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
	return true
}

// alive reports false for a dead process that its parent has not reaped: in a container that may never
// happen.
func alive(pid int) bool {
	fields := statFields("/proc/" + strconv.Itoa(pid) + "/stat")
	return len(fields) > 0 && string(fields[0]) != "Z"
}

// statFields returns the fields after the name in a process's stat: state, parent, … The name may contain
// anything, so the fields start after its closing bracket (proc(5)). It returns nil if there is no such
// process.
func statFields(path string) [][]byte {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return bytes.Fields(content[bytes.LastIndexByte(content, ')')+1:])
}
