package runbooks

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// PostgreSQL moves to a server without a superuser for us, where the owner has another name. Nothing fails except
// during the pause.
func TestPostgres_MovesToNewServer(t *testing.T) {
	t.Parallel()
	o := newOperator(t, harness.Options{})
	ws := o.NewWorkspace(t)
	connector, owner := ws.Connector(t, harness.ReadProgrammes), o.Person(t, ws.Owner)
	tokens, revoked := connector.Connect(t, owner), connector.Connect(t, owner)
	connector.Revoke(t, revoked.RefreshToken)
	token := o.Database.Token(t, ws.Workspace, ws.Owner, harness.ReadProgrammes)

	o.stopServices()
	o.run(t, "backup.md", "dump")
	o.buy(t)
	o.run(t, "postgres-move.md", "fill")
	o.run(t, "postgres-move.md", "filled")
	o.run(t, "postgres-move.md", "new-host")
	for _, service := range []string{"authserver", "resourceapi"} {
		o.run(t, "store-passwords.md", "database-login", "SERVICE="+service, "BY=almoner")
	}
	o.running.Postgres.Stop() // the old server
	o.startServices(t)
	o.run(t, "postgres-move.md", "moved")
	connector.WantsWorking(t, tokens)
	connector.WantsRevoked(t, revoked)
	o.In(ws.Workspace, token).Get(t, harness.ListPath).Wants(t, http.StatusOK)
}

// buy does what an operator does in a provider's console: it creates a server with an empty database and an owner who
// may create roles. It writes them to the files.
func (o *operator) buy(t *testing.T) {
	t.Helper()
	bought, _ := o.newServer(t)
	const password = "ofthenewowner"
	execute(t, connect(t, bought), "create role tenant1234 login createrole password '"+password+"'",
		"create database bought owner tenant1234")
	owner := o.address(t, bought)
	owner.User, owner.Path = url.UserPassword("tenant1234", password), "/bought"
	o.writeServices(t, map[string]*url.URL{"almoner": owner})
	o.writeSecret(t, "owner-database-url", owner.String())
}

// newServer starts another, empty PostgreSQL and returns its superuser's URL and its log.
func (o *operator) newServer(t *testing.T) (url, log string) {
	t.Helper()
	dir, err := localstore.TempDir("almoner-runbooks-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	server, err := localstore.StartPostgres(t.Context(),
		localstore.Options{Dir: dir, Tools: os.Getenv("ALMONER_TEST_TOOLS"), Volatile: true})
	must(t, err)
	t.Cleanup(server.Stop)
	return server.URL, filepath.Join(dir, "postgres.log")
}

// Redis loses its data, then moves to a cluster, then behind Sentinels. Current tokens keep working, and ended grants
// stay ended.
func TestRedis_LosesDataAndMoves(t *testing.T) {
	t.Parallel()
	o := newOperator(t, harness.Options{})
	ctx := context.WithoutCancel(t.Context())
	ws := o.NewWorkspace(t)
	connector, owner := ws.Connector(t, harness.ReadProgrammes), o.Person(t, ws.Owner)
	current, old, revoked := connector.Connect(t, owner), connector.Connect(t, owner), connector.Connect(t, owner)
	wants := func(t *testing.T) {
		t.Helper()
		current = connector.WantsWorking(t, current)
		connector.WantsRevoked(t, revoked)
		after := connector.Refresh(t, old.RefreshToken).Tokens(t)
		connector.Refresh(t, old.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		connector.WantsRevoked(t, after)
		old = connector.Connect(t, owner)
	}
	connector.Revoke(t, revoked.RefreshToken).Wants(t, http.StatusOK)

	o.running.Redis.Kill()
	must(t, o.running.Redis.Forget())
	must(t, o.running.Redis.Restart(ctx))
	o.run(t, "redis-lost.md", "look")
	wants(t)

	for name, address := range map[string]string{
		"a cluster": harness.Servers(t, localstore.StartRedisCluster).URL,
		"Sentinels": harness.Servers(t, localstore.StartRedisSentinel).URL,
	} {
		t.Run("moves to "+name, func(t *testing.T) {
			o.writeSecret(t, "redis-url.new", address)
			o.stopServices()
			o.run(t, "redis-move.md", "new-url")
			o.startServices(t)
			if output := o.run(t, "redis-move.md", "moved"); !strings.Contains(output, `"redis":"ok"`) {
				t.Errorf("moved: %s", output)
			}
			wants(t)
		})
	}
	o.run(t, "trouble.md", "what-grows")
	o.run(t, "trouble.md", "schema")
}

// A database with many grants is lost and restored from a dump, as the runbooks say. The test measures each step;
// users wait for the sum of the steps.
func TestRecovery_DumpOfManyGrants(t *testing.T) {
	if !harness.Long() {
		t.Skip("takes minutes: make torture PART=recovery runs it; TestRestore_Dump is its short form")
	}
	const grants = 1_000_000
	o := newOperator(t, harness.Options{})
	harness.Record(t, "%d grants dumped and restored: %s", grants, &o.steps)
	o.addGrants(t, grants)
	o.restoreDump(t)
}

// addGrants adds grants of the demo's connector. Their foreign keys are not checked one by one, which takes minutes.
func (o *operator) addGrants(t *testing.T, grants int) {
	t.Helper()
	address := o.address(t, o.running.Postgres.URL)
	address.Path = o.address(t, o.running.DatabaseURL).Path
	superuser := connect(t, address.String())
	execute(t, superuser, "set session_replication_role = replica")
	d := o.Demo
	added, err := superuser.Exec(t.Context(), manyGrants, d.Clients.Connector.ClientID, d.Users.Owner.ID,
		d.Workspaces.Main.ID, d.Clients.Connector.Resource, grants)
	must(t, err)
	if added.RowsAffected() != int64(grants) {
		t.Fatalf("%d grants", added.RowsAffected())
	}
	must(t, superuser.Close(t.Context())) // a restore refuses other sessions
}

// manyGrants inserts active grants of one connector, as large as the grants of real consents.
const manyGrants = `insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource, state,
	generation, refresh_hash, code_binding, created_at, last_used_at, ends_at)
	select gen_random_uuid(), 'connector', $1, $2, $3, '{programmes:read:programmes}', $4, 'active',
		3, sha256(n::text::bytea), sha256((-n)::text::bytea), now() - interval '1 hour', now(),
		now() + interval '29 days'
	from generate_series(1, $5::int) n`

// timed are the durations of steps.
type timed struct{ text string }

func (s *timed) String() string { return s.text }

func (s *timed) do(name string, step func()) {
	began := time.Now()
	step()
	if s.text != "" {
		s.text += ", "
	}
	s.text += fmt.Sprint(name, " ", time.Since(began).Round(100*time.Millisecond))
}
