package runbooks

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/e2e/harness"
)

// What had ended before a restore, and what the restored past believes in again.
type ended struct {
	connector      harness.Connector
	head           *harness.Person // signed in
	workspace      demo.Workspace
	revoked, alive harness.Tokens  // the second one was not revoked: it ends with the restore
	since          harness.Tokens  // of a grant that the restored past does not know
	attempt        harness.Attempt // redeemed, after the moment that is restored
	code           string
	token          string // personal access token, revoked after that moment
	key            string // that signs
}

// prepare makes what is to end.
func (o *operator) prepare(t *testing.T) *ended {
	t.Helper()
	office := o.Office(t)
	connector := office.Connector(t, harness.ReadProgrammes)
	e := &ended{
		connector: connector,
		head:      o.Person(t, office.Head),
		workspace: office.Workspace,
		attempt:   connector.Begin(),
	}
	e.token = o.World.Token(t, office.Workspace, office.Head, harness.ReadProgrammes)
	e.revoked, e.alive = connector.Connect(t, e.head), connector.Connect(t, e.head)
	e.code = e.attempt.Code(t, e.head)
	if page := e.head.Open(t, o.AppURL+"/settings/user"); page.Status != http.StatusOK {
		t.Fatalf("nobody is signed in:\n%s", page.Answer)
	}
	e.key = o.World.Text(t, "select kid from account.signing_keys where state = 'current'")
	return e
}

// happen ends it, as people and administrators do.
func (o *operator) happen(t *testing.T, e *ended) {
	t.Helper()
	e.connector.Revoke(t, e.revoked.RefreshToken).Wants(t, http.StatusOK)
	o.World.RevokeToken(t, e.token)
	e.connector.Post(t, e.attempt.CodeForm(e.code)).Wants(t, http.StatusOK)
	e.alive = e.connector.Refresh(t, e.alive.RefreshToken).Tokens(t)
	e.since = e.connector.Connect(t, e.head)
}

// wantsNothing checks that the restored database gives nothing to anybody who had something before, and everything to
// who begins again.
func (o *operator) wantsNothing(t *testing.T, e *ended) {
	t.Helper()
	o.In(e.workspace, e.token).Get(t, harness.ListPath).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	for _, tokens := range []harness.Tokens{e.revoked, e.alive, e.since} {
		e.connector.WantsDead(t, tokens)
	}
	e.connector.Post(t, e.attempt.CodeForm(e.code)).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	if keys := string(o.API().Get(t, "/v1/account/oauth/jwks").Body); strings.Contains(keys, e.key) {
		t.Error("a signing key of the past is published")
	}
	if page := e.head.Open(t, o.AppURL+"/settings/user"); page.Status == http.StatusOK &&
		strings.HasPrefix(page.URL.Path, "/settings") {
		t.Error("somebody is still signed in")
	}
	again := e.connector.Connect(t, e.head)
	e.connector.WantsAlive(t, again)
}

// afterRestore walks through the page between a restored PostgreSQL and services that run.
func (o *operator) afterRestore(t *testing.T) {
	t.Helper()
	o.run(t, "after-restore.md", "migrate")
	if said := o.run(t, "after-restore.md", "grants"); !strings.Contains(said, "evoked") {
		t.Errorf("grants: %s", said)
	}
	o.run(t, "after-restore.md", "tokens")
	o.run(t, "after-restore.md", "signing-keys")
	if said := o.run(t, "after-restore.md", "nothing-lives"); said != "0 grants\n0 personal access tokens\n0 "+
		"sign-ins\n" {
		t.Errorf("what lives:\n%s", said)
	}
	o.startServices(t)
	o.World.Reconnect()
}

func TestADumpIsRestored(t *testing.T) {
	t.Parallel()
	o := newOperator(t, harness.Options{})
	e := o.prepare(t)
	o.run(t, "backup.md", "dump")
	o.happen(t, e)
	o.stopServices()
	o.run(t, "restore.md", "aside")
	if said := o.run(t, "restore.md", "restore"); !strings.HasSuffix(said, " users\n") {
		t.Errorf("restored: %s", said)
	}
	o.afterRestore(t)
	o.wantsNothing(t, e)
}

// Of the server that was lost nothing is left but the dump and the roles. The logins have the same passwords on the new
// one.
func TestADumpIsRestoredOnANewServer(t *testing.T) {
	t.Parallel()
	o := newOperator(t, harness.Options{})
	e := o.prepare(t)
	o.run(t, "backup.md", "dump")
	o.happen(t, e)
	o.stopServices()
	o.running.Postgres.Stop()
	superuser := o.address(t, o.newServer(t))
	owner := o.address(t, o.running.DatabaseURL)
	owner.Host = superuser.Host
	o.writeServices(t, map[string]*url.URL{"almoner": owner, "almoner_admin": superuser})
	o.run(t, "restore.md", "roles")
	o.run(t, "restore.md", "new-host", "NEW="+superuser.Host)
	o.run(t, "restore.md", "restore")
	o.afterRestore(t)
	o.wantsNothing(t, e)

	restored := *superuser
	restored.Path = owner.Path
	db, err := pgx.Connect(t.Context(), restored.String())
	must(t, err)
	defer func() { _ = db.Close(context.WithoutCancel(t.Context())) }()
	var strangers bool // pg_monitor may do what everybody may, and nothing else
	must(
		t,
		db.QueryRow(t.Context(), "select has_database_privilege('pg_monitor', current_database(), 'connect')").
			Scan(&strangers),
	)
	if strangers {
		t.Error("everybody who has a login may connect to the restored database")
	}
}

// The moment lies before the revocations, and Redis has lost its memory too: nothing but the page keeps the dead from
// coming back.
func TestBackToAMoment(t *testing.T) {
	t.Parallel()
	o := newOperator(t, harness.Options{})
	ctx := context.WithoutCancel(t.Context())
	o.run(t, "backup.md", "archive-on")
	must(t, o.running.Postgres.Restart(ctx))
	o.World.Reconnect()
	o.run(t, "backup.md", "base")
	e := o.prepare(t)
	moment := o.World.Text(t, "select clock_timestamp()::text")
	o.happen(t, e)
	o.run(t, "backup.md", "archived")
	if decided := o.decisions(t, moment); !strings.Contains(decided, "grant.revoked") {
		t.Errorf("the list of what was decided since does not tell of the revocation:\n%s", decided)
	}
	o.stopServices()
	o.running.Redis.Stop()
	must(t, o.running.Redis.Forget())
	must(t, o.running.Redis.Restart(ctx))
	o.running.Postgres.Stop()
	o.run(t, "point-in-time.md", "recover", "MOMENT="+moment)
	must(t, o.running.Postgres.Restart(ctx))
	if said := o.run(t, "point-in-time.md", "promoted"); !strings.HasPrefix(said, "f\n") {
		t.Errorf("promoted: %s", said)
	}
	o.World.Reconnect()
	if state := o.World.Text(t, "select state from account.grants where id = $1", harness.GrantOf(t, e.revoked.AccessToken)); state != "active" {
		t.Errorf("the grant is %s in the restored past: this test shows nothing", state)
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
