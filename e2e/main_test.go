// Package e2e tests the product, as two real binaries behind one address, against the specification.
//
// SPEC.md names a test for each sentence. If a test fails and the sentence is clear, the product is wrong.
package e2e

import (
	"context"
	"crypto/elliptic"
	"encoding/base64"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
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

// bounded needs 65 concurrent requests of one credential that all wait for Postgres, or a search that takes half a
// second.
const bounded = "app.TestBounds_OneCredentialHas64InFlightAnd2Searches"

// unreachable are patterns of described responses that no request can cause here. Each has a test closer to its cause.
var unreachable = map[string]string{
	// Keys are read at the start, which waits for the database.
	"GET /(v1/account/oauth/jwks|.well-known/jwks.json) 503": "token.TestDocument_ErrorIs503",
	// Needs 6,000 wrong secrets of one client within a minute.
	"POST /v1/account/oauth/revoke 429":     "token.TestRevoke_OnlyWrongSecretsAreThrottled",
	"POST /v1/account/oauth/introspect 429": "token.TestIntrospect_OnlyWrongSecretsAreThrottled",

	`[A-Z]+ /(mcp|v1/me|v1/me/usage|v1/events|v1/webhooks.*) 429`:                     bounded,
	`[A-Z]+ /v1/(programmes/.*|engage/(forms|submissions|supporters|erasures).*) 429`: bounded,

	"[A-Z]+ /v1/account/tenants/.* 429":          "api.TestBounds_OneCredentialHas64InFlightAnd8Handled",
	"GET /v1/programmes/programmes 422":          "app.TestSearch_TooExpensiveIs422AndDoesNotSlowOthers",
	"POST /v1/programmes/programmes/imports 429": "app.TestImport_TooManyWaitingIs429",
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

// lasting starts a stack that runs until the test process ends.
func lasting(t testing.TB, options harness.Options) *stack.Stack {
	t.Helper()
	s, err := harness.Lasting(options)
	must(t, err)
	return s
}

// shared returns the stack that all tests here share: two real binaries behind the gateway, as `make run` starts them.
// Tests do not modify the demo's users, applications and tokens; they create what they modify.
var shared = testkit.Once(func(t testing.TB) *stack.Stack { return lasting(t, harness.Options{Traced: true}) })

// laboratory starts the stack of the tests that change its services, keys or schema.
var laboratory = testkit.Once(func(t testing.TB) *stack.Stack { return lasting(t, harness.Options{}) })

var laboratoryInUse sync.Mutex

// inLaboratory returns the laboratory for a test that runs beside others, which are elsewhere: here is one at a time.
func inLaboratory(t *testing.T) (*stack.Stack, *harness.Product) {
	t.Helper()
	t.Parallel()
	s := laboratory(t)
	laboratoryInUse.Lock()
	t.Cleanup(laboratoryInUse.Unlock)
	return s, harness.NewProduct(t, s, &met)
}

// enter returns the product for a test.
func enter(t *testing.T) *harness.Product {
	t.Helper()
	return harness.NewProduct(t, shared(t), &met)
}

// fileContent returns the content of a file.
func fileContent(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	must(t, err)
	return content
}

// eachFile calls do with each file below a folder of the repository.
func eachFile(t *testing.T, folder string, do func(path string)) {
	t.Helper()
	must(t, filepath.WalkDir(filepath.Join("..", folder), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			do(path)
		}
		return err
	}))
}

// inParallel returns the product for a test that runs beside others.
func inParallel(t *testing.T) *harness.Product {
	t.Helper()
	t.Parallel()
	return enter(t)
}

// inWorkspace returns the product for a test that runs beside others, and a workspace that no other test uses.
func inWorkspace(t *testing.T) (*harness.Product, harness.TestWorkspace) {
	t.Helper()
	p := inParallel(t)
	return p, p.NewWorkspace(t)
}

// programmes is the list's path (spec 4.1).
const programmes = "/v1/programmes/programmes"

// alterLast changes a character near the end of a token, which belongs to a signature, a MAC or a checksum.
func alterLast(token string) string {
	at := len(token) - 3
	other := "A"
	if token[at] == 'A' {
		other = "B"
	}
	return token[:at] + other + token[at+1:]
}

// otherForm returns the other ECDSA signature that is valid for the same message: (r, n-s).
func otherForm(t *testing.T, signature string) string {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(signature)
	if err != nil || len(raw) != 64 {
		t.Fatal("a signature that is not ES256")
	}
	s := new(big.Int).Sub(elliptic.P256().Params().N, new(big.Int).SetBytes(raw[32:]))
	return base64.RawURLEncoding.EncodeToString(append(raw[:32:32], s.FillBytes(make([]byte, 32))...))
}

func sorted(values []string) []string { return slices.Sorted(slices.Values(values)) }

// A withdrawal is a statement that withdraws what allows a request. It must affect at least one row.
type withdrawal struct {
	SQL  string
	Args []any
}

// inBetween makes changes between the check and the write of a request. The changes are made in a transaction that is
// open when the request starts, so that the checks of the request see the state before them. The transaction is
// committed as soon as the request waits for a row that it has locked. A request that ties its write to its check
// waits for the commit and then finds that it is no longer allowed. A request that does not tie them waits for
// nothing and ends before the commit, which shows in what it wrote.
func inBetween(t testing.TB, d *harness.Database, request func(), changes ...withdrawal) {
	t.Helper()
	whileLocked(t, d, request, func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }, changes...)
}

// meanwhile runs do while a request waits for a row that the SQL has locked. The transaction of the SQL is rolled back.
func meanwhile(t testing.TB, d *harness.Database, request, do func(), sql string, args ...any) {
	t.Helper()
	whileLocked(t, d, request, func(ctx context.Context, tx pgx.Tx) error {
		do()
		return tx.Rollback(ctx)
	}, withdrawal{sql, args})
}

// whileLocked makes changes, starts the request, and calls end when the request waits for a row that the changes have
// locked, or has ended.
func whileLocked(
	t testing.TB, d *harness.Database, request func(), end func(context.Context, pgx.Tx) error, changes ...withdrawal,
) {
	t.Helper()
	ctx, tx := context.WithoutCancel(t.Context()), d.Begin(t)
	for _, change := range changes {
		if tag, err := tx.Exec(ctx, change.SQL, change.Args...); err != nil || tag.RowsAffected() == 0 {
			t.Fatalf("%s: %d rows, %v", change.SQL, tag.RowsAffected(), err)
		}
	}
	done := make(chan struct{})
	go func() { defer close(done); request() }()
	pid := int32(tx.Conn().PgConn().PID())
	await.True(t, "the request waits for the change or ends", func() bool {
		select {
		case <-done:
			return true
		default:
		}
		return d.Count(t, `select count(*) from pg_stat_activity where $1::int = any (pg_blocking_pids(pid))`, pid) > 0
	})
	must(t, end(ctx, tx))
	<-done
}

// replaces marks a personal access token as the replacement of a former one.
func replaces(t testing.TB, d *harness.Database, token, former string) {
	t.Helper()
	d.Exec(t, `update account.personal_access_tokens new set replaces_id = old.id
		from account.personal_access_tokens old where new.hash = $1 and old.hash = $2`,
		credential.Hash(token), credential.Hash(former))
}
