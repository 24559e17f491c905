package attack

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
)

// The state of the test process: what its tests have met, and where the services of the shared stack write their logs.
var (
	met     harness.Secrets
	logsDir atomic.Value
)

// testsAtOnce is more than there are processors: tests mostly wait for servers.
const testsAtOnce = "4"

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == flag.Lookup("test.parallel").DefValue {
		_ = flag.Set("test.parallel", testsAtOnce)
	}
	code := m.Run()
	if dir, any := logsDir.Load().(string); any && code == 0 {
		code = lookForLeaks(dir)
	}
	os.Exit(code)
}

// lookForLeaks looks for whatever secret the whole run has met in the services' logs: attacks are requests that go wrong, and
// those are logged the most.
func lookForLeaks(dir string) int {
	logs, err := harness.ReadLogs(dir)
	if err != nil {
		fmt.Println("FAIL: the services' logs cannot be read:", err)
		return 1
	}
	if found := met.FoundIn(logs); len(found) > 0 {
		fmt.Println("FAIL: secrets of this run are in the services' logs:", found)
		return 1
	}
	return 0
}

// started is the stack of all tests here. Every way to sign in that it can offer by itself is one more way to attack.
var started = sync.OnceValues(func() (*stack.Stack, error) {
	return harness.Lasting(harness.Options{Settings: map[string]string{"ALMONER_PASSKEYS": "true"}})
})

func shared(t *testing.T) *stack.Stack {
	t.Helper()
	s, err := started()
	if err != nil {
		t.Fatalf("start the stack: %v", err)
	}
	logsDir.Store(s.LogDir())
	return s
}

// enter is how a test meets the product.
func enter(t *testing.T) *harness.Product {
	t.Helper()
	return harness.Enter(t, shared(t), &met)
}
