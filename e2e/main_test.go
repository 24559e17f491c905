// Package e2e answers: does the product, as two real binaries behind one address, do what the specification says?
//
// SPEC.md names a test for each sentence. A test that is red while the sentence is clear means that the product is
// wrong.
package e2e

import (
	"fmt"
	"os"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// met are the secrets that the tests of this process have met. In the end, TestMain looks for them wherever they must
// not be.
var met harness.Secrets

func TestMain(m *testing.M) {
	code := harness.Main(m, 6)
	if code == 0 && harness.EverythingRan() {
		code = lookForAnswersThatNeverCame()
	}
	os.Exit(code)
}

const bounded = "TestBounds_OneCredentialHas64InFlightAnd2Searches in resourceapi/internal/app"

const boundedAccount = "TestBounds_OneCredentialHas64InFlightAnd8Handled in " +
	"authserver/internal/endpoint/oauthclients"

// unreachable are answers that are described and that no request can provoke here. Each has a test closer to its cause.
var unreachable = map[string]string{
	// Keys are read at the start, which a database that is away delays.
	"GET /v1/account/oauth/jwks 503": "TestDocument_ErrorIs503 in authserver/internal/endpoint/wellknown",
	// It takes 6,000 wrong secrets of one client within a minute.
	"POST /v1/account/oauth/revoke 429": "TestRevoke_OnlyWrongSecretsAreThrottled in " +
		"authserver/internal/endpoint/revoke",
	"POST /v1/account/oauth/introspect 429": "TestIntrospect_OnlyWrongSecretsAreThrottled in " +
		"authserver/internal/endpoint/introspect",
	// They take 65 requests of one credential at once, all of which wait for Postgres; or a search that takes half a
	// second.
	"GET /v1/programmes/programmes 429":                   bounded,
	"POST /v1/programmes/programmes 429":                  bounded,
	"GET /v1/programmes/programmes/{id} 429":              bounded,
	"PATCH /v1/programmes/programmes/{id} 429":            bounded,
	"POST /v1/programmes/programmes/{id}/transitions 429": bounded,
	"GET /v1/programmes/programmes/imports/{id} 429":      bounded,
	"GET /v1/engage/forms 429":                            bounded,
	"POST /v1/engage/forms 429":                           bounded,
	"GET /v1/engage/forms/{id} 429":                       bounded,
	"PATCH /v1/engage/forms/{id} 429":                     bounded,
	"GET /v1/engage/forms/{id}/submissions 429":           bounded,
	"GET /mcp 429":    bounded,
	"POST /mcp 429":   bounded,
	"DELETE /mcp 429": bounded,
	"GET /v1/account/tenants/{tenantId}/oauth-clients 429":                    boundedAccount,
	"POST /v1/account/tenants/{tenantId}/oauth-clients 429":                   boundedAccount,
	"GET /v1/account/tenants/{tenantId}/oauth-clients/{clientId} 429":         boundedAccount,
	"DELETE /v1/account/tenants/{tenantId}/oauth-clients/{clientId} 429":      boundedAccount,
	"POST /v1/account/tenants/{tenantId}/oauth-clients/{clientId}/secret 429": boundedAccount,
	"GET /v1/programmes/programmes 422":                                       "TestSearch_TooExpensiveIs422 in resourceapi/internal/app",
	"POST /v1/programmes/programmes/imports 429": "TestImport_TooManyWaitingIs429 in " +
		"resourceapi/internal/app",
}

// lookForAnswersThatNeverCame holds the second half of invariant O2 of package openapi: what is described occurs.
func lookForAnswersThatNeverCame() int {
	book, err := harness.Book()
	if err != nil {
		fmt.Println("FAIL: the description cannot be read:", err)
		return 1
	}
	code := 0
	for _, answer := range book.Missing() {
		if unreachable[answer] == "" {
			fmt.Println("FAIL: described in shared/openapi, and met by no test:", answer)
			code = 1
		}
	}
	return code
}

// enter is how a test meets the product.
func enter(t *testing.T) *harness.Product {
	t.Helper()
	return harness.Enter(t, harness.Shared(t), &met)
}
