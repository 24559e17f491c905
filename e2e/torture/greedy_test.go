package torture

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
)

// One workspace and anonymous callers request as much as they can while users of another workspace work.

const (
	residentAtMost = 200 << 10 // KiB, of one service
	honestAtMost   = 500 * time.Millisecond
	quietAtMost    = 100 * time.Millisecond // of honest requests while nothing else happens
)

// TestGreedyCallers_LeaveOtherWorkspacesWorking runs the services with the memory limits of the systemd units, and runs
// the attacks one at a time and then all together. Users of another workspace must see no effect, and no process may
// end.
func TestGreedyCallers_LeaveOtherWorkspacesWorking(t *testing.T) {
	onlyLong(t, "greedy", "it is a measurement; tests of resourceapi/internal/app have the bounds (F11 to F14)")
	const lasts, together = 15 * time.Second, time.Minute
	attacks := []attack{
		headerBomb, escapeBomb, searchBomb, slowReaders, slowSenders(500), manySecrets, wrongPasswords, manyImports,
	}
	s := newGreedySite(t)
	var summary strings.Builder
	_, _ = fmt.Fprint(&summary, " ", s.round(t, "no attack", lasts), ";") // a strings.Builder never fails
	s.honest.judgeTimes(t, honestAtMost)
	harness.Record(t, "%d attacks for %s each, then all at once for %s;%v", len(attacks), lasts, together,
		harness.Deferred[string](summary.String))
	for _, one := range attacks {
		_, _ = fmt.Fprint(&summary, " ", s.round(t, one.name, lasts, one), ";")
	}
	_, _ = fmt.Fprint(&summary, " ", s.round(t, "all at once", together, attacks...), ";")
	_, _ = fmt.Fprint(&summary, " by kind: ", s.honest.byKind(t), "; ", s.memory, "; load average ", loadAverage())
}

// A greedySite is a product whose services have the memory limits of the systemd units, with a greedy workspace and
// with users of another one.
type greedySite struct {
	running *stack.Stack
	greedy  *greedyCaller
	honest  *honestUsers
	memory  string // how memory is bounded
}

func newGreedySite(t *testing.T) *greedySite {
	t.Helper()
	var groups []string
	var shipped []unit
	for _, name := range []string{"authserver", "resourceapi", "resourceapi-worker"} {
		one := readUnit(t, name)
		shipped, groups = append(shipped, one), append(groups, newMemoryGroup(t, one.memory))
	}
	s := &greedySite{running: harness.Private(t, harness.Options{Worker: true})}
	s.memory = "each service in a control group as in deploy/systemd"
	for i, service := range s.services() {
		for name, value := range shipped[i].settings {
			service.Set(name, value)
		}
		if groups[i] == "" {
			s.memory = "no control group could be created: only resident memory was checked"
		} else {
			runInGroup(service, groups[i])
		}
		must(t, service.Restart(t.Context()))
	}
	p := harness.NewProduct(t, s.running, &seenSecrets)
	s.greedy, s.honest = newGreedyCaller(t, p, s.running), newHonestUsers(t, p)
	return s
}

func (s *greedySite) services() []*stack.Service {
	return []*stack.Service{s.running.Authservers[0], s.running.Resourceapi, s.running.Worker}
}

// round runs the attacks while honest users work, checks both, and returns a summary.
func (s *greedySite) round(t *testing.T, name string, lasts time.Duration, attacks ...attack) string {
	t.Helper()
	for _, service := range s.services() {
		if !resetPeakMemory(service.PID()) {
			t.Log("the memory peak cannot be reset: it counts from the start")
		}
	}
	s.greedy.begin()
	ctx := lasting(t, lasts, func() bool { return len(attacks) == 0 || s.greedy.outcomes() != "" })
	var all sync.WaitGroup
	for _, one := range attacks {
		all.Go(func() { one.run(ctx, s.greedy) })
	}
	for _, service := range s.services() {
		all.Go(func() { s.watchReady(ctx, t, name, service) })
	}
	summary := s.honest.work(ctx, t, name)
	all.Wait()
	for what, times := range s.greedy.complaints {
		t.Errorf("%s: %d times, %s", name, times, what)
	}
	logCauses(t, s.running.LogDir())
	for _, service := range s.services() {
		select {
		case <-service.Done():
			t.Fatalf("%s: %s ended", name, service.Name)
		default:
		}
		peak := harness.ProcessStatus(t, service.PID(), "VmHWM:")
		summary += fmt.Sprintf(", %s %d MiB", service.Name, peak>>10)
		if peak > residentAtMost {
			t.Errorf("%s: %s had %d MiB resident, want at most %d", name, service.Name, peak>>10, residentAtMost>>10)
		}
	}
	outcomes := s.greedy.outcomes()
	t.Logf("%s: %s; the greedy callers got %s", name, summary, outcomes)
	return name + " " + summary
}

// watchReady polls a service's /readyz and fails in the long form unless it is always 200.
func (s *greedySite) watchReady(ctx context.Context, t *testing.T, during string, service *stack.Service) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	asked, refused := 0, 0
	for ctx.Err() == nil {
		response, err := client.Get(service.URL + "/readyz")
		if asked++; err != nil || response.StatusCode != http.StatusOK {
			refused++
		}
		if err == nil {
			_ = response.Body.Close()
		}
		time.Sleep(200 * time.Millisecond)
	}
	if refused > 0 {
		t.Logf("%s: %s was not ready %d of %d times", during, service.Name, refused, asked)
	}
	if refused > 0 && harness.Long() {
		t.Errorf("%s: /readyz of %s was not 200 throughout", during, service.Name)
	}
}

// A unit is what a systemd unit file gives a service: its memory limit in bytes, and the settings that bound its use.
type unit struct {
	memory   int
	settings map[string]string
}

func readUnit(t *testing.T, name string) unit {
	t.Helper()
	content, err := os.ReadFile("../../deploy/systemd/" + name + "@.service")
	if errors.Is(err, fs.ErrNotExist) { // it has one instance
		content, err = os.ReadFile("../../deploy/systemd/" + name + ".service")
	}
	must(t, err)
	out := unit{settings: map[string]string{}}
	for line := range strings.Lines(string(content)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "MemoryMax":
			mib, err := strconv.Atoi(strings.TrimSuffix(value, "M"))
			if err != nil {
				t.Fatalf("MemoryMax of %s: %v", name, err)
			}
			out.memory = mib << 20
		case "Environment":
			for pair := range strings.FieldsSeq(value) {
				setting, value, _ := strings.Cut(pair, "=")
				if setting == "GOMEMLIMIT" || setting == "GOGC" || setting == "ALMONER_DATABASE_CONNECTIONS" {
					out.settings[setting] = value
				}
			}
		}
	}
	if out.memory == 0 || out.settings["GOMEMLIMIT"] == "" {
		t.Fatalf("%s.service sets no memory limit: %+v", name, out)
	}
	return out
}

// loadAverage returns the load averages of the last 1 and 5 minutes (proc(5)).
func loadAverage() string {
	content, _ := os.ReadFile("/proc/loadavg") // empty if it is absent
	averages := strings.Fields(string(content))
	return strings.Join(averages[:min(2, len(averages))], " ")
}

// hierarchy is where control groups are created, with the files that limit the memory and swap of a group.
type hierarchy struct{ root, limit, swap, swapLimit string }

// newMemoryGroup creates a control group, whose processes the kernel kills when they use more memory than the limit in
// bytes, as under systemd and Kubernetes, and removes it when the test ends. Create it before the stack, so that it is
// empty by then. It returns the directory, or "" if the kernel does not let this process create one.
func newMemoryGroup(t testing.TB, limit int) (dir string) {
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
		t.Cleanup(func() { must(t, os.Remove(dir)) })
		return dir
	}
	return ""
}

// runInGroup makes a service run in a control group from its next start on.
func runInGroup(service *stack.Service, group string) {
	const enter = `echo $$ > "$0" && exec "$@"`
	arguments := []string{"-c", enter, filepath.Join(group, "cgroup.procs"), service.Spec.Path}
	service.Spec.Path, service.Spec.Args = "/bin/sh", append(arguments, service.Spec.Args...)
}

// resetPeakMemory resets the peak of the resident memory of a process and reports whether the kernel allowed it
// (proc(5), clear_refs).
func resetPeakMemory(pid int) bool {
	return os.WriteFile("/proc/"+strconv.Itoa(pid)+"/clear_refs", []byte("5"), 0) == nil
}
