package bench

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// spent returns the processor time that the target's processes have used so far.
func (t target) spent() [3]time.Duration {
	var out [3]time.Duration
	for i, pids := range [][]int{t.pids, t.postgres, t.redis} {
		for _, pid := range pids {
			out[i] += processorTime(pid)
		}
	}
	return out
}

// processorTime returns the user and system time that a process and its children, ended ones included, have used so
// far. The kernel counts hundredths of a second (proc(5), stat).
func processorTime(pid int) time.Duration {
	ticks := ticksOf(strconv.Itoa(pid))
	// The file is missing if the kernel does not provide it.
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
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
		return 0 // the process has ended
	}
	sum := 0
	for _, part := range parts[11:15] { // utime, stime, cutime and cstime
		ticks, _ := strconv.Atoi(part)
		sum += ticks
	}
	return sum
}

// middle returns the median, or NaN without figures.
func middle(figures []float64) float64 {
	if len(figures) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(figures))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
