// Package e2e tests the product, as two real binaries behind one address, against the specification.
//
// SPEC.md names a test for each sentence. If a test fails and the sentence is clear, the product is wrong.
package e2e

import (
	"fmt"
	"os"
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

const (
	bounded        = "TestBounds_OneCredentialHas64InFlightAnd2Searches in resourceapi/internal/app"
	boundedAccount = "TestBounds_OneCredentialHas64InFlightAnd8Handled in authserver/internal/endpoint/api"
	tooExpensive   = "TestSearch_TooExpensiveIs422 in resourceapi/internal/app"
	tooManyWaiting = "TestImport_TooManyWaitingIs429 in resourceapi/internal/app"
)

// unreachable are described responses that no request can cause here. Each has a test closer to its cause.
var unreachable = map[string]string{
	// Keys are read at the start, which waits for the database.
	"GET /v1/account/oauth/jwks 503": "TestDocument_ErrorIs503 in authserver/internal/endpoint/protocol/token",
	"GET /.well-known/jwks.json 503": "TestDocument_ErrorIs503 in authserver/internal/endpoint/protocol/token",
	// Needs 6,000 wrong secrets of one client within a minute.
	"POST /v1/account/oauth/revoke 429": "TestRevoke_OnlyWrongSecretsAreThrottled in " +
		"authserver/internal/endpoint/protocol/token",
	"POST /v1/account/oauth/introspect 429": "TestIntrospect_OnlyWrongSecretsAreThrottled in " +
		"authserver/internal/endpoint/protocol/token",
	// Needs 65 concurrent requests of one credential that all wait for Postgres, or a search that takes half a
	// second.
	"GET /v1/programmes/programmes 429":                       bounded,
	"POST /v1/programmes/programmes 429":                      bounded,
	"GET /v1/programmes/programmes/{id} 429":                  bounded,
	"PATCH /v1/programmes/programmes/{id} 429":                bounded,
	"POST /v1/programmes/programmes/{id}/transitions 429":     bounded,
	"GET /v1/programmes/programmes/imports/{id} 429":          bounded,
	"GET /v1/engage/forms 429":                                bounded,
	"POST /v1/engage/forms 429":                               bounded,
	"GET /v1/engage/forms/{id} 429":                           bounded,
	"PATCH /v1/engage/forms/{id} 429":                         bounded,
	"GET /v1/engage/forms/{id}/submissions 429":               bounded,
	"PUT /v1/programmes/programmes/external/{externalId} 429": bounded,
	"POST /v1/programmes/programmes/transitions 429":          bounded,
	"POST /v1/programmes/programmes/batch 429":                bounded,
	"DELETE /v1/programmes/programmes/{id} 429":               bounded,
	"DELETE /v1/engage/forms/{id} 429":                        bounded,
	"GET /v1/engage/submissions/{id} 429":                     bounded,
	"DELETE /v1/engage/submissions/{id} 429":                  bounded,
	"GET /v1/engage/forms/{id}/submissions/export 429":        bounded,
	"GET /v1/engage/supporters 429":                           bounded,
	"POST /v1/engage/supporters/erase 429":                    bounded,
	"GET /v1/engage/supporters/{id} 429":                      bounded,
	"GET /v1/engage/erasures/{id} 429":                        bounded,
	"DELETE /v1/engage/supporters/{id} 429":                   bounded,
	"GET /v1/me 429":                                          bounded,
	"GET /v1/events 429":                                      bounded,
	"GET /v1/webhooks 429":                                    bounded,
	"POST /v1/webhooks 429":                                   bounded,
	"GET /v1/webhooks/{id} 429":                               bounded,
	"PATCH /v1/webhooks/{id} 429":                             bounded,
	"DELETE /v1/webhooks/{id} 429":                            bounded,
	"POST /v1/webhooks/{id}/test 429":                         bounded,
	"POST /v1/webhooks/{id}/secret 429":                       bounded,
	"GET /v1/webhooks/{id}/deliveries 429":                    bounded,
	"POST /v1/webhooks/{id}/deliveries/{delivery}/resend 429": bounded,
	"GET /mcp 429":    bounded,
	"POST /mcp 429":   bounded,
	"DELETE /mcp 429": bounded,
	"GET /v1/account/tenants/{tenantId}/oauth-clients 429":                    boundedAccount,
	"POST /v1/account/tenants/{tenantId}/oauth-clients 429":                   boundedAccount,
	"GET /v1/account/tenants/{tenantId}/oauth-clients/{clientId} 429":         boundedAccount,
	"DELETE /v1/account/tenants/{tenantId}/oauth-clients/{clientId} 429":      boundedAccount,
	"POST /v1/account/tenants/{tenantId}/oauth-clients/{clientId}/secret 429": boundedAccount,
	"GET /v1/account/tenants/{tenantId}/members 429":                          boundedAccount,
	"PATCH /v1/account/tenants/{tenantId}/members/{userId} 429":               boundedAccount,
	"DELETE /v1/account/tenants/{tenantId}/members/{userId} 429":              boundedAccount,
	"GET /v1/account/tenants/{tenantId}/invitations 429":                      boundedAccount,
	"POST /v1/account/tenants/{tenantId}/invitations 429":                     boundedAccount,
	"DELETE /v1/account/tenants/{tenantId}/invitations/{invitationId} 429":    boundedAccount,
	"GET /v1/programmes/programmes 422":                                       tooExpensive,
	"POST /v1/programmes/programmes/imports 429":                              tooManyWaiting,
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
		if unreachable[answer] == "" {
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
