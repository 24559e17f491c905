// Package torture tests the promises about grants under concurrency and while stores and processes fail.
//
// Each suite has a short form, which `make test` runs, and a long form: `make torture PART=races` or another part that
// README.md lists. The results of the long forms are in e2e/EVIDENCE.md.
//
// brokenbuilds_test.go proves that each suite can fail: it builds the product without one protection, runs the suite
// against that build and checks that it fails. The source files stay unchanged (harness.Fault).
package torture

import (
	"encoding/json"
	"flag"
	"net/http"
	"net/url"
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

// unhurried is the pause of a client between its requests in the short form, which shares the processors with others.
func unhurried() {
	if !harness.Long() {
		time.Sleep(20 * time.Millisecond)
	}
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
	must(t, err)
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
	must(t, err)
	return s
}

func enterPair(t *testing.T) *harness.Product {
	t.Helper()
	return harness.NewProduct(t, startedPair(t), &seenSecrets)
}

// Requests that may get no response, or an incomplete one, because a service or a store has been stopped.

const formType = "application/x-www-form-urlencoded"

// tryList lists programmes with an access token in its workspace.
func tryList(t testing.TB, c harness.Connector, tokens harness.Tokens) (harness.Answer, error) {
	t.Helper()
	return c.API().With("Authorization", "Bearer "+tokens.AccessToken).With("X-Tenant-Id", tokens.WorkspaceID).
		Try(t, http.MethodGet, harness.ListPath, "", "")
}

// tryRevoke revokes a token with the connector's client id.
func tryRevoke(t testing.TB, c harness.Connector, token string) (harness.Answer, error) {
	t.Helper()
	form := url.Values{"client_id": {c.ClientID}, "token": {token}}
	return c.API().Try(t, http.MethodPost, harness.RevokePath, formType, form.Encode())
}

// tryExchange exchanges the code of a confidential application.
func tryExchange(t testing.TB, p *harness.Product, app harness.ConfidentialApp, code string) (harness.Answer, error) {
	t.Helper()
	return tryJSON(t, p.API(), harness.TokenPath, app.Body(code))
}

// tryJSON posts a value, which must have a form in JSON.
func tryJSON(t testing.TB, api harness.API, path string, value map[string]any) (harness.Answer, error) {
	t.Helper()
	body, err := json.Marshal(value)
	if err != nil {
		return harness.Answer{}, err
	}
	return api.Try(t, http.MethodPost, path, "application/json", string(body))
}

// tryWrite creates a programme.
func tryWrite(t testing.TB, api harness.API) (harness.Answer, error) {
	t.Helper()
	return tryJSON(t, api, harness.ListPath, map[string]any{"name": "Winter meals"})
}

// tryCode returns the code after the person has consented, or "" if a page reports that a service is unavailable.
func tryCode(t testing.TB, a harness.Attempt, person *harness.Person) string {
	t.Helper()
	page := person.Arrive(t, a.URL())
	if !page.IsConsent() {
		return ""
	}
	if page = page.Press(t, "approve"); page.Status >= http.StatusInternalServerError {
		return ""
	}
	return page.Callback(t).Code()
}

// trySubmit sends a form from the person's browser.
func trySubmit(t testing.TB, person *harness.Person, form harness.Form) (harness.Page, error) {
	t.Helper()
	return person.Try(t, http.MethodPost, form.Action, formType, form.Fields.Encode())
}

// A baseline is one credential of every kind and state, made before a store fails. After the failure no revoked or used
// credential may work again, and no current one may be lost.
type baseline struct {
	site
	redeemed      harness.Attempt // its code is used
	redeemedForm  string
	ofRedeemed    harness.Tokens
	waiting       harness.Attempt // its code is unused
	waitingCode   string
	waitingSince  time.Time      // when the code was issued
	honest        harness.Tokens // current
	old, replayed harness.Tokens // superseded, and its successor
	revoked       harness.Tokens
	long          harness.Tokens // of a confidential application
}

// newBaseline creates all credentials and calls middle in between. A copy of a store that is made in middle knows every
// grant, but none in its final state.
func newBaseline(t *testing.T, s site, middle func()) *baseline {
	t.Helper()
	connector, app := s.connector, s.app
	d := &baseline{site: s, redeemed: connector.Begin(), waiting: connector.Begin()}
	d.redeemedForm = d.redeemed.Code(t, d.owner)
	d.honest = connector.Connect(t, d.owner)
	d.old = connector.Connect(t, d.owner)
	d.revoked = connector.Connect(t, d.owner)
	d.long = app.Connect(t, d.owner)
	middle()
	d.ofRedeemed = d.redeemed.Post(t, d.redeemed.CodeForm(d.redeemedForm)).Tokens(t)
	d.waitingCode, d.waitingSince = d.waiting.Code(t, d.owner), time.Now()
	d.honest = connector.Refresh(t, d.honest.RefreshToken).Tokens(t)
	d.replayed = connector.Refresh(t, d.old.RefreshToken).Tokens(t)
	connector.Revoke(t, d.revoked.RefreshToken).Wants(t, http.StatusOK)
	return d
}

// wantsUnaffected checks the credentials that work without Redis: personal access tokens, confidential tokens and
// access tokens.
func (d *baseline) wantsUnaffected(t *testing.T) {
	t.Helper()
	for _, token := range []string{d.Token, d.long.AccessToken, d.honest.AccessToken} {
		d.In(d.Workspace, token).Get(t, harness.ListPath).Wants(t, http.StatusOK)
	}
}

// wantsKept checks the table at the end of the grant store's description.
func (d *baseline) wantsKept(t *testing.T) {
	t.Helper()
	d.wantsUnaffected(t)
	d.honest = d.connector.WantsWorking(t, d.honest)
	d.connector.WantsWorking(t, d.honest)
	d.connector.WantsRevoked(t, d.revoked)
	d.connector.Refresh(t, d.old.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	d.connector.WantsRevoked(t, d.replayed)
	d.redeemed.Post(t, d.redeemed.CodeForm(d.redeemedForm)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	d.connector.WantsRevoked(t, d.ofRedeemed)
	d.connector.WantsRevoked(t, d.revoked)
}

// wantsCode checks that the unused code still works. Only a store that has lost its data may refuse it. On a machine so
// busy that the code may have expired, it checks a new code of the same request.
func (d *baseline) wantsCode(t *testing.T) {
	t.Helper()
	if time.Since(d.waitingSince) > 45*time.Second {
		d.waitingCode = d.waiting.Code(t, d.owner)
	}
	d.connector.WantsWorking(t, d.waiting.Post(t, d.waiting.CodeForm(d.waitingCode)).Tokens(t))
}
