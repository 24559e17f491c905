// Package attack tests the product against known attacks on similar products and against further attacks from outside.
//
// README.md has a row for each known attack with the tests that try it. Many of these tests are in e2e and in the
// packages concerned; the others are here, one file for each kind of attack. TestREADME_NamesATestForEachAttack checks
// that README.md and the tests agree.
//
// The tests read the routes to attack from the product itself (routes_test.go), so a new route without a row fails a
// test. brokenbuilds_test.go builds the product without its protections and checks that each attack then succeeds.
package attack

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var must = testkit.Must

// seen collects the secrets that the tests of this process have seen.
var seen harness.Secrets

func TestMain(m *testing.M) { os.Exit(harness.Main(m, 4)) }

// started returns the stack that all tests here share. It offers every sign-in method that needs no other service,
// since each can be attacked.
var started = sync.OnceValues(func() (*stack.Stack, error) {
	return harness.Lasting(harness.Options{Traced: true, Settings: map[string]string{"ALMONER_PASSKEYS": "true"}})
})

func shared(t *testing.T) *stack.Stack {
	t.Helper()
	s, err := started()
	must(t, err)
	return s
}

// newProduct returns the product on the shared stack, and lets the test run in parallel with others.
func newProduct(t *testing.T) *harness.Product {
	t.Helper()
	t.Parallel()
	return harness.NewProduct(t, shared(t), &seen)
}

// newAttack returns the product and a target there.
func newAttack(t *testing.T) (*harness.Product, *target) {
	t.Helper()
	p := newProduct(t)
	return p, newTarget(t, p)
}

// formAt returns a form that is sent to a path of the app.
func formAt(p *harness.Product, path string, fields url.Values) harness.Form {
	return harness.Form{Action: p.AppURL + path, Fields: fields}
}

// logIn sends the form of the login page.
func logIn(t *testing.T, p *harness.Product, who *harness.Person, password string) harness.Page {
	t.Helper()
	return who.Submit(t, formAt(p, "/login", url.Values{"email": {who.Email}, "password": {password}}))
}

// gets checks that a response has one of the statuses. If it has not, what is true, and is an error.
func gets(t *testing.T, answer harness.Answer, what string, statuses ...int) {
	t.Helper()
	if !slices.Contains(statuses, answer.Status) {
		want := strings.ReplaceAll(strings.Trim(fmt.Sprint(statuses), "[]"), " ", " or ")
		t.Errorf("%s: want %s:\n%s", what, want, answer)
	}
}

// alike checks that the response to what another caller may have differs in nothing from that to what is missing.
func alike(t *testing.T, what string, existing, missing harness.Answer) {
	t.Helper()
	if existing.Status != missing.Status || string(existing.Body) != string(missing.Body) {
		t.Errorf("%s can be told from an existing one:\n%s\n%s", what, existing, missing)
	}
}

// choice returns the values that one of many places gets: the first few, and of the others every eighth, which differs
// from place to place. In the long form, every place gets all.
func choice(all []string, few, place int) []string {
	if harness.Long() {
		return all
	}
	chosen := slices.Clone(all[:few])
	for at := few + place%8; at < len(all); at += 8 {
		chosen = append(chosen, all[at])
	}
	return chosen
}
