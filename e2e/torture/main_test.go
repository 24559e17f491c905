// Package torture tests the promises about grants under concurrency and while stores and processes fail.
//
// Each suite has a short form, which `make test` runs, and a long form: `make torture PART=races` or another part that
// README.md lists. The results of the long forms are in e2e/EVIDENCE.md.
//
// brokenbuilds_test.go proves that each suite can fail: it builds the product without one protection, runs the suite
// against that build and checks that it fails. The source files stay unchanged (harness.Fault).
package torture

import (
	"flag"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// seenSecrets collects the secrets that the tests of this process have seen.
var seenSecrets harness.Secrets

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, testsAtOnce))
}

// testsAtOnce is the number of tests that run in parallel after those that keep the processors busy. Each has its own
// stack and mostly waits, or it waits for its turn at a stack that several tests share.
const testsAtOnce = 9

// parallelIfShort runs a suite that mostly waits in parallel with others in its short form. In the long form its
// results would depend on the other suites.
func parallelIfShort(t *testing.T) {
	t.Helper()
	if !harness.Long() {
		t.Parallel()
	}
}

// onlyLong skips a test in `make test`. It says why, and the part of `make torture` that runs the test. Against a
// broken build (-scale) the test runs in its short form.
func onlyLong(t *testing.T, part, why string) {
	t.Helper()
	if !harness.Long() && flag.Lookup("scale").Value.String() == "1" {
		t.Skipf("%s: make torture PART=%s", why, part)
	}
}

// atMost returns how long something may take at most: the limit in the long form, which has a quiet machine. In the
// short form, which is part of `make test`, a duration says more about the machine than about the product, so the test
// checks only that it ends.
func atMost(limit time.Duration) time.Duration {
	if harness.Long() {
		return limit
	}
	return await.Long
}

// workers is the number of concurrent workers, each with its own grants. They wait for servers more than they compute.
var workers = 4

// spread divides the rounds among the workers. Each worker is a subtest, so a failed round ends only that worker.
func spread(t *testing.T, rounds int, worker func(t *testing.T) (round func(t *testing.T))) {
	t.Helper()
	t.Run("at once", func(t *testing.T) {
		for range workers {
			t.Run("worker", func(t *testing.T) {
				t.Parallel()
				round := worker(t)
				for range max(1, rounds/workers) {
					round(t)
				}
			})
		}
	})
}

// pair returns a product with two authserver processes, which alternate behind the gateway. The suites that do not run
// in parallel share it; some of them make its Redis fail for a moment.
var pair = sync.OnceValues(func() (*stack.Stack, error) { return harness.Lasting(pairOfAuthservers()) })

// pairOfAuthservers disables traces in the long form, where they would take gigabytes and slow the tests down.
func pairOfAuthservers() harness.Options {
	return harness.Options{Authservers: 2, Traced: !harness.Long()}
}

// A turnstile lets tests that run in parallel use one stack, one at a time. In the long form each test has its own.
type turnstile struct {
	options harness.Options
	mu      sync.Mutex
	start   func() (*stack.Stack, error)
}

func newTurnstile(options harness.Options) *turnstile {
	start := func() (*stack.Stack, error) { return harness.Lasting(options) }
	return &turnstile{options: options, start: sync.OnceValues(start)}
}

// enter returns a stack that no other test uses at the same time.
func (x *turnstile) enter(t *testing.T) *stack.Stack {
	t.Helper()
	if harness.Long() || len(citusNodes) > 0 { // the cluster ends with the test
		return harness.Private(t, x.options)
	}
	x.mu.Lock()
	t.Cleanup(x.mu.Unlock)
	s, err := x.start()
	if err != nil {
		t.Fatalf("start the stack: %v", err)
	}
	return s
}

// A site is a workspace of one test, with its applications and its owner at a browser.
type site struct {
	*harness.Product
	harness.TestWorkspace
	connector harness.Connector
	app       harness.ConfidentialApp
	owner     *harness.Person
}

// newSite makes a workspace in a stack.
func newSite(t *testing.T, running *stack.Stack) site {
	t.Helper()
	return siteOf(t, harness.NewProduct(t, running, &seenSecrets))
}

func siteOf(t *testing.T, p *harness.Product) site {
	t.Helper()
	ws := p.NewWorkspace(t)
	connector, app := ws.Connector(t, harness.ReadProgrammes), ws.Confidential(t, "", harness.ReadProgrammes)
	return site{p, ws, connector, app, p.Person(t, ws.Owner)}
}

// list lists the programmes with the owner's token.
func (s site) list(t *testing.T) harness.Answer {
	t.Helper()
	return s.In(s.Workspace, s.Token).Get(t, harness.ListPath)
}

func startedPair(t *testing.T) *stack.Stack {
	t.Helper()
	s, err := pair()
	if err != nil {
		t.Fatalf("start the stack: %v", err)
	}
	return s
}

func enterPair(t *testing.T) *harness.Product {
	t.Helper()
	return harness.NewProduct(t, startedPair(t), &seenSecrets)
}
