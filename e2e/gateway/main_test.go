package gateway

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// met are the secrets that the tests of this process have met.
var met harness.Secrets

func TestMain(m *testing.M) {
	code := harness.Main(m, 6)
	os.Exit(max(code, lookForLeaksAtTheFronts()))
}

// A site is the product behind both gateways: they have the same names and ports, and each an address of its own.
type site struct {
	stack     *stack.Stack
	processes processes
	fronts    []*front
}

// started is the site of all tests here. Two processes of authserver take turns; of resourceapi, the second is one that
// nobody listens for, so every test sees a gateway with a process down.
var started = sync.OnceValues(func() (*site, error) {
	ports, err := findPorts()
	if err != nil {
		return nil, err
	}
	s, err := harness.Lasting(harness.Options{
		Authservers: 2,
		BaseURL:     ports.baseURL(),
		AppURL:      ports.appURL(),
		Traced:      true,
		Settings: map[string]string{
			"ALMONER_TRUSTED_PROXIES": "127.0.0.1", // where both connect from
			"ALMONER_NOTICE":          defaultNotice,
		},
	})
	if err != nil {
		return nil, err
	}
	nobody, err := localstore.FreePort()
	if err != nil {
		return nil, err
	}
	processes := processes{
		authserver:  [2]string{hostOf(s.Authservers[0].URL), hostOf(s.Authservers[1].URL)},
		resourceapi: [2]string{hostOf(s.Resourceapi.URL), fmt.Sprint("127.0.0.1:", nobody)},
	}
	fronts, err := startFronts(ports, processes)
	return &site{s, processes, fronts}, err
})

// entered says that some test has asked for the site.
var entered atomic.Bool

func enter(t *testing.T) *site {
	t.Helper()
	entered.Store(true)
	s, err := started()
	if err != nil {
		t.Fatalf("start the site: %v", err)
	}
	return s
}

// each runs a test at both gateways, side by side.
func each(t *testing.T, test func(t *testing.T, s *site, f *front)) {
	t.Helper()
	t.Parallel()
	s := enter(t)
	for _, f := range s.fronts {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			f.skipIfMissing(t)
			test(t, s, f)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lookForLeaksAtTheFronts looks for every secret that was met in all that the gateways have written.
func lookForLeaksAtTheFronts() int {
	if !entered.Load() {
		return 0
	}
	s, err := started()
	if err != nil {
		return 0 // some test has said so
	}
	code := 0
	for _, f := range s.fronts {
		if f.missing != nil {
			continue
		}
		text, err := os.ReadFile(f.log)
		if err != nil {
			fmt.Println("FAIL: the log of a gateway cannot be read:", err)
			code = 1
		}
		if found := met.FoundIn(text); len(found) > 0 {
			fmt.Printf("FAIL: secrets of this run are in the log of %s: %v\n", f.name, found)
			code = 1
		}
	}
	return code
}
