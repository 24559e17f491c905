package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/deploy/local/gateway"
	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/database/migrate"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// During an upgrade the schema is already new, and old and new processes serve requests in turn (deploy/UPGRADING.md).
func TestEarlierPrograms_WorkOnNewSchema(t *testing.T) {
	t.Parallel()
	earlier := harness.Earlier(t, harness.PreviousRelease())
	s := harness.Private(t, harness.Options{Authservers: 2, Resources: 2, EarlierBinaries: earlier})
	use := func(i int) *harness.Product {
		return harness.NewProductWithTransport(t, s, &met, through{s, s.Authservers[i], s.Resources[i]})
	}
	current, former := use(0), use(1)
	current.Database.Exec(t, `delete from account.finished_upgrades`) // an upgraded installation has no row
	for name, c := range map[string]struct{ first, then *harness.Product }{
		"new, then earlier": {current, former},
		"earlier, then new": {former, current},
	} {
		t.Run(name, func(t *testing.T) {
			first, then := c.first.DemoConnector(), c.then.DemoConnector()
			attempt := first.Begin()
			code := attempt.Code(t, c.first.Person(t, c.first.Demo.Users.Owner)) // sign-in and consent
			tokens := then.Post(t, attempt.CodeForm(code)).Tokens(t)
			readsProgrammes(t, c.then, tokens)
			readsProgrammes(t, c.first, tokens)
			next := first.Refresh(t, tokens.RefreshToken).Tokens(t)
			last := then.Refresh(t, next.RefreshToken).Tokens(t)
			readsProgrammes(t, c.first, last)
			readsProgrammes(t, c.then, last)
			// A replay at one process revokes the grant for both.
			first.Refresh(t, tokens.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
			then.Refresh(t, last.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
			wantsActive(t, c.then, last, false)
			wantsActive(t, c.first, last, false)
			// A submission that one process accepts is processed by either.
			status := formOf(c.first).accepted(t)
			if end := formOf(c.then).ends(t, status); end != "processed" {
				t.Errorf("the submission's status is %s", end)
			}
		})
	}
}

// After `migrate --finish`, new codes and refresh tokens contain their workspace. Earlier ones stay valid.
func TestFinish_EarlierTokensStayValid(t *testing.T) {
	s, p := inLaboratory(t)
	p.Database.Exec(t, `delete from account.finished_upgrades`)
	connector, owner := p.DemoConnector(), p.Person(t, p.Demo.Users.Owner)
	earlier := connector.Connect(t, owner)
	attempt := connector.Begin()
	code := attempt.Code(t, owner)
	for range 2 { // it is safe to repeat
		must(t, s.Migrate(t.Context(), "authserver", filepath.Dir(harness.Program(t, "authserver")), "--finish"))
	}
	connector.WantsWorking(t, attempt.Post(t, attempt.CodeForm(code)).Tokens(t))
	next := connector.Refresh(t, earlier.RefreshToken).Tokens(t)
	connector.WantsWorking(t, next)
	connector.Refresh(t, earlier.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant") // a replay
	connector.Refresh(t, next.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")

	later := connector.Connect(t, owner)
	if len(later.RefreshToken) <= len(earlier.RefreshToken) {
		t.Error("a refresh token does not contain its workspace")
	}
	connector.WantsWorking(t, connector.Refresh(t, later.RefreshToken).Tokens(t))
}

// Without a migration between the two commits, the test above would prove nothing.
func TestEarlierPrograms_PrecedeNewestMigrations(t *testing.T) {
	t.Parallel()
	earlier, newer := harness.PreviousRelease(), false
	for _, service := range []string{"authserver", "resourceapi"} {
		folder := service + "/internal/store/postgres/migrations"
		all, err := filepath.Glob(filepath.Join("..", folder, "*.sql"))
		must(t, err)
		if len(all) == 0 {
			t.Fatalf("%s has no migrations", service)
		}
		newest := filepath.Base(slices.Max(all))
		_, err = os.Stat(filepath.Join(harness.CommittedFolder(t, earlier, folder), newest))
		newer = newer || err != nil
	}
	if !newer {
		t.Errorf("commit %.10s has the newest migrations: set previousRelease to a commit before them", earlier)
	}
}

func readsProgrammes(t *testing.T, p *harness.Product, tokens harness.Tokens) {
	t.Helper()
	p.As(tokens.AccessToken).With("X-Tenant-Id", tokens.WorkspaceID).Get(t, programmes).Wants(t, http.StatusOK)
	wantsActive(t, p, tokens, true)
}

// wantsActive checks what introspection says of an access token.
func wantsActive(t *testing.T, p *harness.Product, tokens harness.Tokens, want bool) {
	t.Helper()
	seen := p.DemoService().Introspect(t, tokens.AccessToken).Wants(t, http.StatusOK).Object(t)
	if seen["active"] != want {
		t.Errorf("active is %v, want %t", seen["active"], want)
	}
}

// through sends every request directly to one process of each service, without the gateway. The URL decides which.
type through struct {
	Stack                   *stack.Stack
	Authserver, Resourceapi *stack.Service
}

// RoundTrip implements http.RoundTripper.
func (t through) RoundTrip(r *http.Request) (*http.Response, error) {
	service := t.Resourceapi
	if strings.HasPrefix(r.URL.String(), t.Stack.AppURL+"/") || gateway.IsAccount(r.URL.Path) {
		service = t.Authserver
	}
	address, err := url.Parse(service.URL)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Host = r.URL.Host
	r.URL.Host = address.Host
	return http.DefaultTransport.RoundTrip(r)
}

// emptyDatabase creates an empty database on the stack's server and returns its URL and a connection of its owner.
func emptyDatabase(t *testing.T, name string) (address string, connection *pgx.Conn) {
	t.Helper()
	running := shared(t)
	owner, err := url.Parse(running.DatabaseURL)
	must(t, err)
	administrator, err := pgx.Connect(t.Context(), running.Postgres.URL)
	must(t, err)
	_, err = administrator.Exec(t.Context(), "create database "+name+" owner "+owner.User.Username())
	must(t, err)
	owner.Path = "/" + name
	connection, err = pgx.Connect(t.Context(), owner.String())
	must(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = connection.Close(ctx)
		if _, err := administrator.Exec(ctx, "drop database "+name+" with (force)"); err != nil {
			t.Error(err)
		}
		_ = administrator.Close(ctx)
	})
	return owner.String(), connection
}

// Deployments use the exit status of `migrate --check` to see whether the schema matches the program
// (deploy/UPGRADING.md).
func TestMigrate_CheckReportsStatusWithoutChanges(t *testing.T) {
	t.Parallel()
	address, connection := emptyDatabase(t, "nobody_migrated")
	for _, program := range []string{"authserver", "resourceapi"} {
		check := func(want int, words string) {
			t.Helper()
			before := dumped(t, address)
			output, status := migrates(t, program, address, "--check")
			if status != want || !strings.Contains(output, words) {
				t.Errorf("%s migrate --check: %d %s, want %d and %q", program, status, output, want, words)
			}
			if after := dumped(t, address); after != before {
				t.Errorf("%s migrate --check has changed the database: %s", program, firstDifference(after, before))
			}
		}
		check(3, "_base.sql")
		if output, status := migrates(t, program, address); status != 0 {
			t.Fatalf("%s migrate: %d %s", program, status, output)
		}
		check(0, "up to date")
		_, err := connection.Exec(t.Context(),
			fmt.Sprintf("insert into goose_%s (version_id, is_applied) values (99999, true)", program))
		must(t, err)
		check(4, "99999")
	}
}

// The first migration of each service makes what the migrations before it made: an installation of the oldest release
// that is upgraded in place gets the schema of a new installation, with the same rows. One that lacks the last of these
// migrations is refused and stays as it is.
func TestMigrate_OldestUpgradeEqualsNewInstallation(t *testing.T) {
	t.Parallel()
	fresh, _ := emptyDatabase(t, "new_installation")
	upgraded, _ := emptyDatabase(t, "oldest_upgrade")
	for _, service := range []string{"authserver", "resourceapi"} {
		folder := service + "/internal/store/postgres/migrations"
		earlier := harness.CommittedFolder(t, migrate.OldestUpgrade, folder)
		names, err := filepath.Glob(filepath.Join(earlier, "*.sql"))
		must(t, err)
		slices.Sort(names)
		last := names[len(names)-1]
		hidden := filepath.Join(t.TempDir(), filepath.Base(last))
		must(t, os.Rename(last, hidden))
		before := migrate.Migrations{Files: os.DirFS(earlier), Table: "goose_" + service}
		_, err = before.Up(t.Context(), upgraded)
		must(t, err)
		output, status := migrates(t, service, upgraded)
		if status != 1 || !strings.Contains(output, migrate.OldestUpgrade) {
			t.Errorf("%s migrate, of an older database: %d %s", service, status, output)
		}
		must(t, os.Rename(hidden, last))
		_, err = before.Up(t.Context(), upgraded)
		must(t, err)
		for _, database := range []string{upgraded, fresh} {
			if output, status := migrates(t, service, database); status != 0 {
				t.Fatalf("%s migrate: %d %s", service, status, output)
			}
			if output, status := migrates(t, service, database, "--check"); status != 0 {
				t.Errorf("%s migrate --check: %d %s", service, status, output)
			}
		}
	}
	if got, want := dumped(t, upgraded), dumped(t, fresh); got != want {
		t.Errorf("the schemas differ:\n%s", firstDifference(got, want))
	}
}

// migrates runs the migrate command of a service.
func migrates(t *testing.T, service, database string, arguments ...string) (output string, status int) {
	t.Helper()
	arguments = append([]string{"migrate"}, arguments...)
	command := exec.CommandContext(t.Context(), harness.Program(t, service), arguments...)
	command.Env = []string{"ALMONER_DATABASE_URL=" + database}
	out, err := command.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return string(out), command.ProcessState.ExitCode()
}

var (
	// Newer versions of pg_dump write a random key.
	dumpKey = regexp.MustCompile(`(?m)^\\(un)?restrict .*$`)
	moment  = regexp.MustCompile(`'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+[^']*'`)
)

// dumped returns the schema and the rows of a database as pg_dump writes them, without the times of rows.
func dumped(t *testing.T, database string) string {
	t.Helper()
	folders, environ, err := localstore.Tools(os.Getenv("ALMONER_TEST_TOOLS"))
	must(t, err)
	command := exec.CommandContext(t.Context(), filepath.Join(folders[0], "pg_dump"), "--inserts", database)
	command.Env = append(os.Environ(), environ...)
	out, err := command.Output()
	must(t, err)
	return moment.ReplaceAllString(dumpKey.ReplaceAllString(string(out), ""), "'moment'")
}

// firstDifference returns the first lines in which two texts differ.
func firstDifference(got, want string) string {
	wanted := strings.Split(want, "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(wanted) || line != wanted[i] {
			return fmt.Sprintf("line %d: %q, want %q", i+1, line, wanted[min(i, len(wanted)-1)])
		}
	}
	return "lines are missing"
}

// administer runs a command of `authserver admin`.
func administer(t *testing.T, s *stack.Stack, args ...string) {
	t.Helper()
	line := append([]string{"-c", `set -a; . "$0"; exec "$@"`, s.AdminFile(), s.Authserver(), "admin"}, args...)
	if out, err := exec.CommandContext(t.Context(), "sh", line...).CombinedOutput(); err != nil {
		t.Fatalf("admin %v: %v\n%s", args, err, out)
	}
}

// Contract, section 6: after a signing key is removed, the next request with one of its tokens is rejected on every
// route.
func TestSigningKey_RemovedIsRejectedAtOnce(t *testing.T) {
	running, p := inLaboratory(t)
	ws, service := p.NewWorkspace(t), p.DemoService()
	owner := p.Person(t, ws.Owner)
	connector := ws.Connector(t, harness.ReadProgrammes)
	assistant := ws.ConnectorFor(t, p.BaseURL+"/mcp", harness.ReadProgrammes)
	app := ws.Confidential(t, "", harness.APIAccess, harness.ReadProgrammes)
	connect := func() held {
		return held{
			connector.Connect(t, owner).AccessToken, assistant.Connect(t, owner).AccessToken,
			app.Connect(t, owner).AccessToken,
		}
	}
	connected := connector.Connect(t, owner)
	stolen := connect()
	kid := keyOf(t, stolen.rest)
	works := func(what string, tokens held, rest, account int, active bool) {
		t.Helper()
		t.Log(what)
		p.In(ws.Workspace, tokens.rest).Get(t, harness.ListPath).Wants(t, rest)
		rpc(t, mcp(p, tokens.mcp), "tools/list", nil).Wants(t, rest)
		p.As(tokens.account).Get(t, ws.Clients()).Wants(t, account)
		for _, token := range []string{tokens.rest, tokens.mcp, tokens.account} {
			if got := service.Introspect(t, token).Wants(t, http.StatusOK).Object(t)["active"]; got != active {
				t.Errorf("introspection returns active: %v, want %t", got, active)
			}
		}
	}
	works("before the rotation", stolen, http.StatusOK, http.StatusOK, true)

	administer(t, running, "keys", "rotate")
	await.True(t, "the next key signs", func() bool { return keyOf(t, connector.Connect(t, owner).AccessToken) != kid })
	other := connect()
	works("under the next key", other, http.StatusOK, http.StatusOK, true)
	works("under the retired key", stolen, http.StatusOK, http.StatusOK, true)

	administer(t, running, "keys", "remove", "--", kid)
	works("under the removed key", stolen, http.StatusUnauthorized, http.StatusForbidden, false)
	p.In(ws.Workspace, stolen.rest).Get(t, harness.ListPath).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	wantsChallenge(t, p, rpc(t, mcp(p, stolen.mcp), "tools/list", nil), `error="invalid_token"`)
	if got := strings.TrimSpace(string(service.Introspect(t, stolen.rest).Body)); got != `{"active":false}` {
		t.Errorf("introspection says more than that the token is not active: %s", got)
	}
	works("under the other key, after the removal", other, http.StatusOK, http.StatusOK, true)
	// The current key is removed: the processes sign with the next one at once, before they read the keys again. The
	// grants remain: a refresh returns a token of the other key.
	current := keyOf(t, other.rest)
	administer(t, running, "keys", "remove", "--", current)
	for _, tokens := range []harness.Tokens{
		connector.Refresh(t, connected.RefreshToken).Tokens(t), connector.Connect(t, owner), app.Connect(t, owner),
	} {
		if keyOf(t, tokens.AccessToken) == current {
			t.Error("a removed key signed a token")
		}
		connector.List(t, tokens).Wants(t, http.StatusOK)
	}
}

// held contains access tokens of one signing key.
type held struct{ rest, mcp, account string }

func keyOf(t *testing.T, token string) string {
	t.Helper()
	kid, _ := harness.Decode(t, token).Header["kid"].(string)
	return kid
}
