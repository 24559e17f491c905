// Package e2e tests the product, as two real binaries behind one address, against the specification.
//
// SPEC.md names a test for each sentence. If a test fails and the sentence is clear, the product is wrong.
package e2e

import (
	"fmt"
	"os"
	"regexp"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
)

// met are the secrets that the tests of this process have used. TestMain searches for them at the end.
var met harness.Secrets

func TestMain(m *testing.M) {
	code := harness.Main(m, 4)
	if code == 0 && harness.EverythingRan() {
		code = checkDescribedResponsesOccurred()
	}
	os.Exit(code)
}

// unreachable are patterns of described responses that no request can cause here. Each has a test closer to its cause.
var unreachable = map[string]string{
	// Keys are read at the start, which waits for the database.
	"GET /(v1/account/oauth/jwks|.well-known/jwks.json) 503": "token.TestDocument_ErrorIs503",
	// Needs 6,000 wrong secrets of one client within a minute.
	"POST /v1/account/oauth/revoke 429":     "token.TestRevoke_OnlyWrongSecretsAreThrottled",
	"POST /v1/account/oauth/introspect 429": "token.TestIntrospect_OnlyWrongSecretsAreThrottled",
	// Needs 65 concurrent requests of one credential that all wait for Postgres, or a search that takes half a second.
	"[A-Z]+ /(mcp|v1/me|v1/events|v1/programmes/.*) 429":              "app.TestBounds_OneCredentialHas64InFlightAnd2Searches",
	"[A-Z]+ /v1/webhooks.* 429":                                       "app.TestBounds_OneCredentialHas64InFlightAnd2Searches",
	"[A-Z]+ /v1/engage/(forms|submissions|supporters|erasures).* 429": "app.TestBounds_OneCredentialHas64InFlightAnd2Searches",
	"[A-Z]+ /v1/account/tenants/.* 429":                               "api.TestBounds_OneCredentialHas64InFlightAnd8Handled",
	"GET /v1/programmes/programmes 422":                               "app.TestSearch_TooExpensiveIs422",
	"POST /v1/programmes/programmes/imports 429":                      "app.TestImport_TooManyWaitingIs429",
}

// isUnreachable reports whether a described response, such as "GET /v1/me 429", is unreachable.
func isUnreachable(response string) bool {
	for pattern := range unreachable {
		if regexp.MustCompile("^" + pattern + "$").MatchString(response) {
			return true
		}
	}
	return false
}

// checkDescribedResponsesOccurred checks the second half of invariant O2 of package openapi: every described response
// occurs.
func checkDescribedResponsesOccurred() int {
	checker, err := harness.Checker()
	if err != nil {
		fmt.Println("FAIL: the description cannot be read:", err)
		return 1
	}
	code := 0
	for _, answer := range checker.Missing() {
		if !isUnreachable(answer) {
			fmt.Println("FAIL: described in shared/contract/openapi, and met by no test:", answer)
			code = 1
		}
	}
	return code
}

// started starts the stack that all tests here share: two real binaries behind the gateway, as `make run` starts them.
var started = sync.OnceValues(func() (*stack.Stack, error) { return harness.Lasting(harness.Options{Traced: true}) })

// shared returns the shared stack. Tests do not modify the demo's users, applications and tokens; they create what they
// modify.
func shared(t testing.TB) *stack.Stack {
	t.Helper()
	s, err := started()
	if err != nil {
		t.Fatalf("start the stack: %v", err)
	}
	return s
}

// enter returns the product for a test.
func enter(t *testing.T) *harness.Product {
	t.Helper()
	return harness.NewProduct(t, shared(t), &met)
}

// inWorkspace returns the product for a test that runs beside others, and a workspace that no other test uses.
func inWorkspace(t *testing.T) (*harness.Product, harness.TestWorkspace) {
	t.Helper()
	t.Parallel()
	p := enter(t)
	return p, p.NewWorkspace(t)
}
