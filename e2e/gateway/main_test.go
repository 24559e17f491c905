// Package gateway tests Caddy and nginx, as configured by deploy/gateway, in front of the two services.
//
// Both are the real programs, on loopback, with TLS by a certificate authority of the test, in front of the real
// binaries. The tests of a program that is not installed are skipped with a message; `make test` installs both.
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

// met are the secrets that the tests of this process have used.
var met harness.Secrets

func TestMain(m *testing.M) {
	code := harness.Main(m, 6)
	os.Exit(max(code, lookForLeaksAtTheFronts()))
}

// A site is the product behind both gateways. They have the same names and ports, and different addresses.
type site struct {
	stack     *stack.Stack
	processes processes
	fronts    []*front
}

// started is the site of all tests of this package. authserver has two processes. The second address of resourceapi
// has no process, so that every test runs with a process down.
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
			"ALMONER_TRUSTED_PROXIES": "127.0.0.1", // the address from which both connect
			"ALMONER_NOTICE":          defaultNotice,
		},
	})
	if err != nil {
		return nil, err
	}
	unusedPort, err := localstore.FreePort()
	if err != nil {
		return nil, err
	}
	processes := processes{
		authserver:  [2]string{hostOf(s.Authservers[0].URL), hostOf(s.Authservers[1].URL)},
		resourceapi: [2]string{hostOf(s.Resourceapi.URL), fmt.Sprint("127.0.0.1:", unusedPort)},
	}
	fronts, err := startFronts(ports, processes)
	return &site{s, processes, fronts}, err
})

// entered reports whether a test has used the site.
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

// each runs a test with both gateways in parallel.
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

// lookForLeaksAtTheFronts searches the logs of the gateways for every secret that was used.
func lookForLeaksAtTheFronts() int {
	if !entered.Load() {
		return 0
	}
	s, err := started()
	if err != nil {
		return 0 // a test has reported the error
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
