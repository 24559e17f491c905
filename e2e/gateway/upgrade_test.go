package gateway

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// underLoad is how long the clients send requests before an upgrade and after it.
const underLoad = 2 * time.Second

// TestUpgrades_FailNoRequest upgrades an installation of an earlier commit while clients send requests through both
// gateways, as deploy/UPGRADING.md says: the schema first, then one process after the other. It has no short form,
// because each upgrade takes half a minute.
func TestUpgrades_FailNoRequest(t *testing.T) {
	if !harness.Long() {
		t.Skip("only in the long form: make torture PART=upgrade")
	}
	commit := harness.PreviousRelease()
	earlier := harness.Earlier(t, commit)
	upgrades := harness.Rounds(0, 20)
	var answered atomic.Int64
	harness.Record(t, "%d upgrades of an installation from commit %.10s, behind Caddy and nginx at once: schema, then "+
		"two processes of each service one after the other; %s requests succeeded", upgrades, commit,
		harness.Deferred[int64](answered.Load))
	for range upgrades {
		if !t.Run("upgrade", func(t *testing.T) { upgrade(t, earlier, &answered) }) {
			return
		}
	}
}

func upgrade(t *testing.T, earlier string, answered *atomic.Int64) {
	s := ownSite(t, harness.Options{Fresh: true, Binaries: earlier, Resources: 2, Settings: map[string]string{
		"ALMONER_STORE_WAIT": testkit.SilentStoreWait.String(), // a busy machine is no failed upgrade
	}})
	running := s.stack
	before := answered.Load()
	stop := s.underLoad(t, 50*time.Millisecond, answered)
	time.Sleep(underLoad)
	binaries := filepath.Dir(harness.Program(t, "authserver"))
	for _, service := range stack.Services() {
		must(t, running.Migrate(context.WithoutCancel(t.Context()), service, binaries))
	}
	// authserver first: a new resourceapi may need what only a new authserver has.
	for _, service := range slices.Concat(running.Authservers, running.Resources) {
		service.Spec.Path = filepath.Join(binaries, filepath.Base(service.Spec.Path))
		s.restartTogether(t, service)
	}
	time.Sleep(underLoad)
	must(t, running.Migrate(context.WithoutCancel(t.Context()), "authserver", binaries, "--finish"))
	time.Sleep(underLoad)
	stop()
	if n := answered.Load() - before; n < 500 {
		t.Errorf("%d requests were answered during the upgrade, want 500 at least", n)
	}
	for _, process := range slices.Concat(running.Authservers, running.Resources) {
		runsFrom(t, process, binaries)
	}
}

// runsFrom checks which program a process runs.
func runsFrom(t *testing.T, process *stack.Service, binaries string) {
	t.Helper()
	program, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(process.PID()), "exe"))
	must(t, err)
	if filepath.Dir(program) != binaries {
		t.Errorf("%s was not upgraded", process.Name)
	}
}
