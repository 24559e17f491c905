package runbooks

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/e2e/harness"
)

// ended is the state of grants and tokens that end with or before a restore.
type ended struct {
	connector      harness.Connector
	owner          *harness.Person // with a session
	workspace      demo.Workspace
	revoked, alive harness.Tokens  // alive was not revoked: it ends with the restore
	since          harness.Tokens  // of a grant that is not in the restored database
	attempt        harness.Attempt // redeemed after the restored moment
	code           string
	token          string // personal access token, revoked after the restored moment
	key            string // id of the signing key
}

// prepare creates the grants, tokens and sessions that must end.
func (o *operator) prepare(t *testing.T) *ended {
	t.Helper()
	ws := o.NewWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes)
	e := &ended{connector: connector, owner: o.Person(t, ws.Owner), workspace: ws.Workspace, attempt: connector.Begin()}
	e.token = o.Database.Token(t, ws.Workspace, ws.Owner, harness.ReadProgrammes)
	e.revoked, e.alive = connector.Connect(t, e.owner), connector.Connect(t, e.owner)
	e.code = e.attempt.Code(t, e.owner)
	if page := e.owner.Open(t, o.AppURL+"/settings/user"); page.Status != http.StatusOK {
		t.Fatalf("not signed in:\n%s", page.Answer)
	}
	e.key = o.Database.Text(t, "select kid from account.signing_keys where state = 'current'")
	return e
}

// happen revokes, redeems and refreshes after the restored moment.
func (o *operator) happen(t *testing.T, e *ended) {
	t.Helper()
	e.connector.Revoke(t, e.revoked.RefreshToken).Wants(t, http.StatusOK)
	o.Database.RevokeToken(t, e.token)
	e.connector.Post(t, e.attempt.CodeForm(e.code)).Wants(t, http.StatusOK)
	e.alive = e.connector.Refresh(t, e.alive.RefreshToken).Tokens(t)
	e.since = e.connector.Connect(t, e.owner)
}

// wantsNothing checks that the restored database accepts no earlier credential, and that a new connection works.
func (o *operator) wantsNothing(t *testing.T, e *ended) {
	t.Helper()
	o.In(e.workspace, e.token).Get(t, harness.ListPath).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	for _, tokens := range []harness.Tokens{e.revoked, e.alive, e.since} {
		e.connector.WantsRevoked(t, tokens)
	}
	e.connector.Post(t, e.attempt.CodeForm(e.code)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	if keys := string(o.API().Get(t, "/v1/account/oauth/jwks").Body); strings.Contains(keys, e.key) {
		t.Error("a signing key from before the restore is published")
	}
	if page := e.owner.Open(t, o.AppURL+"/settings/user"); page.Status == http.StatusOK &&
		strings.HasPrefix(page.URL.Path, "/settings") {
		t.Error("the session from before the restore still works")
	}
	again := e.connector.Connect(t, e.owner)
	e.connector.WantsWorking(t, again)
}

// afterRestore runs the page between the restore of PostgreSQL and the start of the services.
func (o *operator) afterRestore(t *testing.T) {
	t.Helper()
	o.steps.do("migrate", func() { o.run(t, "after-restore.md", "migrate") })
	o.steps.do("revoke all grants", func() {
		if output := o.run(t, "after-restore.md", "grants"); !strings.Contains(output, "evoked") {
			t.Errorf("grants: %s", output)
		}
	})
	o.steps.do("end tokens, sign-ins and keys", func() {
		o.run(t, "after-restore.md", "tokens")
		o.run(t, "after-restore.md", "signing-keys")
		const none = "0 grants\n0 personal access tokens\n0 sign-ins\n"
		if output := o.run(t, "after-restore.md", "nothing-lives"); output != none {
			t.Errorf("still valid:\n%s", output)
		}
	})
	o.steps.do("start the services", func() { o.startServices(t) })
	o.Database.Reconnect()
}

func TestRestore_Dump(t *testing.T) {
	t.Parallel()
	newOperator(t, harness.Options{}).restoreDump(t)
}

// restoreDump dumps the database, and restores it after more has happened.
func (o *operator) restoreDump(t *testing.T) {
	t.Helper()
	e := o.prepare(t)
	o.steps.do("dump", func() { o.run(t, "backup.md", "dump") })
	o.run(t, "backup.md", "verify-dump")
	o.happen(t, e)
	o.stopServices()
	o.steps.do("restore", func() {
		if output := o.run(t, "restore.md", "restore"); !strings.Contains(output, " users.\nComplete.") {
			t.Errorf("restored: %s", output)
		}
	})
	o.afterRestore(t)
	o.wantsNothing(t, e)
}

// Nothing is left of the lost server except the dump and the roles. The logins have the same passwords on the new
// server.
func TestRestore_DumpOnNewServer(t *testing.T) {
	t.Parallel()
	o := newOperator(t, harness.Options{})
	e := o.prepare(t)
	o.run(t, "backup.md", "dump")
	o.happen(t, e)
	o.stopServices()
	o.running.Postgres.Stop()
	address, log := o.newServer(t)
	superuser := o.address(t, address)
	execute(t, connect(t, address), "alter system set log_statement = 'all'", "select pg_reload_conf()")
	owner := o.address(t, o.running.DatabaseURL)
	owner.Host = superuser.Host
	o.writeServices(t, map[string]*url.URL{"almoner": owner, "almoner_admin": superuser})
	secrets := contents(t, o.secrets)
	if _, _, err := o.try(t, "restore.md", "new-host", ""); err == nil || contents(t, o.secrets) != secrets {
		t.Errorf("new-host without NEW_SERVER succeeds, or changes secrets: %v", err)
	}
	o.run(t, "restore.md", "new-host", "NEW_SERVER="+superuser.Host)
	o.run(t, "restore.md", "restore-with-roles")
	logged, err := os.ReadFile(log)
	must(t, err)
	if strings.Contains(string(logged), "SCRAM-SHA-256$") {
		t.Error("the server's log has the hashes of passwords")
	}
	if !strings.Contains(string(logged), "CREATE TABLE account.") {
		t.Error("the server logs no statements")
	}
	o.afterRestore(t)
	o.wantsNothing(t, e)

	restored := *superuser
	restored.Path = owner.Path
	var strangers bool // pg_monitor has only the privileges of PUBLIC
	const connects = "select has_database_privilege('pg_monitor', current_database(), 'connect')"
	must(t, connect(t, restored.String()).QueryRow(t.Context(), connects).Scan(&strangers))
	if strangers {
		t.Error("every login may connect to the restored database")
	}
}

// The moment is before the revocations, and Redis has lost its data too, so only the page prevents revoked grants
// from working again.
func TestRestore_PointInTime(t *testing.T) {
	t.Parallel()
	o := newOperator(t, harness.Options{})
	ctx := context.WithoutCancel(t.Context())
	o.run(t, "backup.md", "archive-on")
	must(t, o.running.Postgres.Restart(ctx))
	o.Database.Reconnect()
	o.run(t, "backup.md", "base")
	o.run(t, "backup.md", "verify-base")
	e := o.prepare(t)
	moment := o.Database.Text(t, "select clock_timestamp()::text")
	o.happen(t, e)
	o.run(t, "backup.md", "archived")
	if decided := o.decisions(t, moment); !strings.Contains(decided, "grant.revoked") {
		t.Errorf("the list of later decisions does not contain the revocation:\n%s", decided)
	}
	o.stopServices()
	o.running.Redis.Stop()
	must(t, o.running.Redis.Forget())
	must(t, o.running.Redis.Restart(ctx))
	o.running.Postgres.Stop()
	o.run(t, "point-in-time.md", "recover", "MOMENT="+moment)
	must(t, o.running.Postgres.Restart(ctx))
	if output := o.run(t, "point-in-time.md", "promoted"); !strings.HasPrefix(output, "f\n") {
		t.Errorf("promoted: %s", output)
	}
	o.Database.Reconnect()
	id := harness.GrantOf(t, e.revoked.AccessToken)
	if state := o.Database.Text(t, "select state from account.grants where id = $1", id); state != "active" {
		t.Errorf("the grant is %s in the restored database, want active", state)
	}
	o.run(t, "point-in-time.md", "target-off")
	o.afterRestore(t)
	o.wantsNothing(t, e)
}

func (o *operator) decisions(t *testing.T, moment string) string {
	t.Helper()
	o.run(t, "point-in-time.md", "decisions", "MOMENT="+moment)
	content, err := os.ReadFile(filepath.Join(o.backups, "decided-since.txt"))
	must(t, err)
	return string(content)
}
