package attack

import (
	"os"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
)

// met are the secrets that the tests of this process have met.
var met harness.Secrets

func TestMain(m *testing.M) { os.Exit(harness.Main(m, 4)) }

// started is the stack of all tests here. Every way to sign in that it can offer by itself is one more way to attack.
var started = sync.OnceValues(func() (*stack.Stack, error) {
	return harness.Lasting(harness.Options{Traced: true, Settings: map[string]string{"ALMONER_PASSKEYS": "true"}})
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
