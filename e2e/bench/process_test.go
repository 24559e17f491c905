package bench

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// spent is the processor time that the target's processes have used so far.
func (t target) spent() [3]time.Duration {
	var out [3]time.Duration
	for i, pids := range [][]int{t.pids, t.postgres, t.redis} {
		for _, pid := range pids {
			out[i] += processorTime(pid)
		}
	}
	return out
}

// processorTime is what a process and its children, those that have ended too, have used so far, in the kernel and outside of it.
// The kernel counts hundredths of a second (proc(5), stat).
func processorTime(pid int) time.Duration {
	ticks := ticksOf(strconv.Itoa(pid))
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)) // none where the kernel does not tell
	for _, child := range strings.Fields(string(children)) {
		ticks += ticksOf(child)
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func ticksOf(pid string) int {
	content, err := os.ReadFile("/proc/" + pid + "/stat")
	_, fields, found := strings.Cut(string(content), ") ")
	parts := strings.Fields(fields)
	if err != nil || !found || len(parts) < 15 {
		return 0 // it has ended
	}
	sum := 0
	for _, part := range parts[11:15] { // utime, stime, and those of children that were waited for
		ticks, _ := strconv.Atoi(part)
		sum += ticks
	}
	return sum
}

// resident is the memory that a process has resident now, in MiB (proc(5), VmRSS).
func resident(t testing.TB, pid int) float64 { return status(t, pid, "VmRSS:") }

// peak is the most that it has had so far (VmHWM).
func peak(t testing.TB, pid int) float64 { return status(t, pid, "VmHWM:") }

func status(t testing.TB, pid int, name string) float64 {
	t.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var kib float64
	_, line, _ := strings.Cut(string(content), name)
	if _, err := fmt.Sscan(line, &kib); err != nil {
		t.Fatalf("no %s of process %d: %v", name, pid, err)
	}
	return kib / 1024
}

// middle is the median: NaN of nothing.
func middle(figures []float64) float64 {
	if len(figures) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(figures))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
