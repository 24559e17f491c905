// Package gateway tests Caddy and nginx, as configured by deploy/gateway, in front of the two services.
//
// Both are the real programs, on loopback, with TLS by a certificate of the test, in front of the real binaries. The
// tests of a program that is not installed are skipped with a message; `make test` installs both.
package gateway

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
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

// started is the site of all tests of this package that stop nothing. Its second address of resourceapi has no process,
// so that every test runs with a process down.
var started = testkit.Once(func(t testing.TB) *site { return newSite(t, lasting, harness.Options{Traced: true}) })

// lasting starts a product that runs until the test process ends.
func lasting(t testing.TB, options harness.Options) *stack.Stack {
	t.Helper()
	s, err := harness.Lasting(options)
	must(t, err)
	return s
}

// newSite starts a product with two processes of authserver behind gateways of its own. If resourceapi has one process,
// its second address has none.
func newSite(
	t testing.TB, start func(testing.TB, harness.Options) *stack.Stack, options harness.Options,
) *site {
	t.Helper()
	ports := findPorts(t)
	options.Authservers, options.BaseURL, options.AppURL = 2, ports.baseURL(), ports.appURL()
	settings := map[string]string{
		"ALMONER_TRUSTED_PROXIES": "127.0.0.1", // the address from which both connect
		"ALMONER_NOTICE":          defaultNotice,
	}
	maps.Copy(settings, options.Settings)
	options.Settings = settings
	s := start(t, options)
	addresses := processes{
		authserver:  [2]string{hostOf(s.Authservers[0].URL), hostOf(s.Authservers[1].URL)},
		resourceapi: [2]string{hostOf(s.Resourceapi.URL), fmt.Sprint("127.0.0.1:", freePort(t))},
	}
	if len(s.Resources) > 1 {
		addresses.resourceapi[1] = hostOf(s.Resources[1].URL)
	}
	fronts := startFronts(t, ports, addresses)
	for _, f := range fronts {
		if f.missing == nil {
			gatewayLogs.Store(f.log, f.name)
		}
	}
	return &site{s, addresses, fronts}
}

// ownSite starts a site for one test.
func ownSite(t *testing.T, options harness.Options) *site {
	t.Helper()
	s := newSite(t, harness.Private, options)
	for _, f := range s.fronts {
		if f.missing == nil {
			t.Cleanup(f.run.Kill)
		}
	}
	return s
}

// alone is the site of the tests that stop processes, one of them at a time.
var (
	turnAlone sync.Mutex
	alone     = testkit.Once(func(t testing.TB) *site { return newSite(t, lasting, harness.Options{Resources: 2}) })
)

// enterAlone returns a site that no other test uses until this one ends. In the long form it is the test's own.
func enterAlone(t *testing.T) *site {
	t.Helper()
	if harness.Long() {
		return ownSite(t, harness.Options{Resources: 2})
	}
	turnAlone.Lock()
	t.Cleanup(turnAlone.Unlock)
	s := alone(t)
	t.Cleanup(func() { // a test that failed may have left processes stopped, which the next one needs
		for _, process := range slices.Concat(s.stack.Authservers, s.stack.Resources) {
			if t.Failed() {
				must(t, process.Restart(context.WithoutCancel(t.Context())))
			}
		}
	})
	return s
}

// each runs a test with both gateways in parallel.
func each(t *testing.T, test func(t *testing.T, s *site, f *front)) {
	t.Helper()
	t.Parallel()
	s := started(t)
	for _, f := range s.fronts {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			f.skipIfMissing(t)
			test(t, s, f)
		})
	}
}

const formType = "application/x-www-form-urlencoded"

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// gatewayLogs are the log files of the gateways of all sites, by the name of the gateway.
var gatewayLogs sync.Map

// lookForLeaksAtTheFronts searches the logs of the gateways for every secret that was used.
func lookForLeaksAtTheFronts() (code int) {
	for file, name := range gatewayLogs.Range {
		text, err := os.ReadFile(file.(string))
		if err != nil {
			fmt.Println("FAIL: the log of a gateway cannot be read:", err)
			code = 1
		}
		if found := met.FoundIn(text); len(found) > 0 {
			fmt.Printf("FAIL: secrets of this run are in the log of %s: %v\n", name, found)
			code = 1
		}
	}
	return code
}
