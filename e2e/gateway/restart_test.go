package gateway

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// defaultNotice is the default of ALMONER_NOTICE, on which deploy/docs/gateway.md relies. Other tests use 0.
const defaultNotice = "4s"

// TestRestarts_FailNoRequest restarts the processes of each service in turn while clients send requests through both
// gateways (F21).
func TestRestarts_FailNoRequest(t *testing.T) {
	t.Parallel()
	restarts := harness.Rounds(1, 100) // of each service
	var answered atomic.Int64
	harness.Record(t, "%d restarts of each service, one of its two processes at a time, behind Caddy and nginx at "+
		"once; %s requests succeeded", restarts, harness.Deferred[int64](answered.Load))
	s := enterAlone(t)
	running := s.stack
	pause := 50 * time.Millisecond
	if harness.Long() {
		pause = 10 * time.Millisecond
	}
	stop := s.underLoad(t, pause, &answered)
	first := []*stack.Service{running.Authservers[0], running.Resources[0]}
	second := []*stack.Service{running.Authservers[1], running.Resources[1]}
	for round := range restarts {
		switch round % 2 {
		case 0:
			s.restartTogether(t, second...)
		case 1: // one by one: a new resourceapi reads the keys from the first authserver
			s.restartTogether(t, first[0])
			s.restartTogether(t, first[1])
		}
	}
	await.True(t, "100 requests for each restart are answered", func() bool {
		return answered.Load() >= int64(100*restarts) || t.Failed()
	})
	stop()
	t.Logf("%d requests answered", answered.Load())
}

// underLoad starts clients that send requests through all gateways, with pauses, until stop, which waits for them. Each
// request that does not succeed is an error of the test.
func (s *site) underLoad(t *testing.T, pause time.Duration, answered *atomic.Int64) (stop func()) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for _, f := range s.fronts {
		if f.missing != nil {
			t.Logf("without %s: %v", f.name, f.missing)
			continue
		}
		for _, request := range s.requests(t, f) {
			clients.Go(func() {
				for ctx.Err() == nil {
					if answer, err := request(); err != nil || answer.Status >= http.StatusBadRequest {
						t.Errorf("a request through %s failed during a restart: %v\n%s%s", f.name, err, answer,
							s.logged(f, answer))
						return
					}
					answered.Add(1)
					time.Sleep(pause)
				}
			})
		}
	}
	return func() {
		end()
		clients.Wait()
	}
}

// restartTogether restarts processes at the same moment and waits until both gateways have noticed that they are
// back.
func (s *site) restartTogether(t *testing.T, services ...*stack.Service) {
	t.Helper()
	var restarting sync.WaitGroup
	for _, service := range services {
		restarting.Go(func() {
			if err := service.Restart(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
	restarting.Wait()
	for _, f := range s.fronts {
		if f.missing != nil {
			continue
		}
		for _, service := range services {
			s.wantTurn(t, f, service)
		}
	}
}

// logged returns the log lines of a request in the gateway and the services, and the gateway's errors.
func (s *site) logged(f *front, answer harness.Answer) string {
	files, _ := filepath.Glob(filepath.Join(s.stack.LogDir(), "*.log")) // the pattern is well-formed
	id := answer.Header.Get("X-Request-Id")
	var found strings.Builder
	for _, file := range append(files, f.log) {
		text, _ := os.ReadFile(file) // for information only
		for line := range strings.Lines(string(text)) {
			if id != "" && strings.Contains(line, id) || strings.Contains(line, `"level":"error"`) {
				found.WriteString("\n          " + filepath.Base(file) + ": " + strings.TrimSpace(line))
			}
		}
	}
	return found.String()
}

// requests returns the requests of the clients of a gateway: with and without a body, to both services, with HTTP/1.1
// and HTTP/2.
func (s *site) requests(t *testing.T, f *front) []func() (harness.Answer, error) {
	t.Helper()
	var all []func() (harness.Answer, error)
	for _, transport := range []*http.Transport{f.transport(t), f.oldTransport(t, "")} {
		p := s.product(t, transport)
		ws := p.NewWorkspace(t)
		connector, owner := ws.Connector(t, harness.ReadProgrammes), p.Person(t, ws.Owner)
		api := p.In(ws.Workspace, ws.Token)
		tokens, working := connector.Connect(t, owner), connector.Connect(t, owner).AccessToken
		all = append(all,
			func() (harness.Answer, error) {
				answer, err := connector.TryPost(t, connector.RefreshForm(tokens.RefreshToken))
				if err == nil && answer.Status == http.StatusOK {
					tokens = answer.Tokens(t)
				}
				return answer, err
			},
			func() (harness.Answer, error) { return p.As(ws.Token).Try(t, http.MethodGet, ws.Clients(), "", "") },
			func() (harness.Answer, error) { return p.App().Try(t, http.MethodGet, "/login", "", "") },
			func() (harness.Answer, error) {
				return p.In(ws.Workspace, working).Try(t, http.MethodGet, harness.ListPath, "", "")
			},
			func() (harness.Answer, error) { return api.Try(t, http.MethodGet, harness.ListPath, "", "") },
			func() (harness.Answer, error) {
				return api.Try(t, http.MethodPost, harness.ListPath, "application/json", `{"name":"Winter meals"}`)
			},
		)
	}
	return all
}

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
