package attack

import (
	"flag"
	"os"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
)

// met are the secrets that the tests of this process have met.
var met harness.Secrets

// testsAtOnce is more than there are processors: tests mostly wait for servers.
const testsAtOnce = "4"

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == flag.Lookup("test.parallel").DefValue {
		_ = flag.Set("test.parallel", testsAtOnce)
	}
	code := m.Run()
	code = max(code, harness.LookForLeaks()) // whatever else failed: a second try of the tests may not leak again
	os.Exit(code)
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
	return s
}

// enter is how a test meets the product.
func enter(t *testing.T) *harness.Product {
	t.Helper()
	return harness.Enter(t, shared(t), &met)
}
