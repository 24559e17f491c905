package torture

import (
	"os"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
)

// met are the secrets that the run has met.
var met harness.Secrets

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, 2))
}

// besideOthers lets a suite that mostly waits run beside others in its long form, which would take too long otherwise.
func besideOthers(t *testing.T) {
	t.Helper()
	if harness.Long() {
		t.Parallel()
	}
}

// workers try at once, each on grants of its own. They wait for servers more than they compute.
const workers = 4

// spread runs rounds, shared among the workers. Each worker is a subtest, so a failed round ends that worker alone.
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

// pair is a product of two processes of authserver which take turns behind the gateway, shared by the suites that break
// nothing.
var pair = sync.OnceValues(func() (*stack.Stack, error) { return harness.Lasting(pairOfAuthservers()) })

// pairOfAuthservers keeps no traces in the long form, where they would be gigabytes and take time from what is tried.
func pairOfAuthservers() harness.Options {
	return harness.Options{Authservers: 2, Traced: !harness.Long()}
}

func enterPair(t *testing.T) *harness.Product {
	t.Helper()
	s, err := pair()
	if err != nil {
		t.Fatalf("start the stack: %v", err)
	}
	return harness.Enter(t, s, &met)
}
