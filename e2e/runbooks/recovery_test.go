package runbooks

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/e2e/harness"
)

// A database with many grants is lost and restored from a dump, as the runbooks say. The test measures each step;
// users wait for the sum of the steps.
func TestRecovery_DumpOfManyGrants(t *testing.T) {
	if !harness.Long() {
		t.Skip("takes minutes: make torture PART=recovery runs it; TestRestore_Dump is its short form")
	}
	const grants = 1_000_000
	steps := &timed{}
	harness.Record(t, "%d grants dumped and restored: %s", grants, steps)
	o := newOperator(t, harness.Options{})
	o.addGrants(t, grants)
	e := o.prepare(t)
	steps.do("dump", func() { o.run(t, "backup.md", "dump") })
	o.happen(t, e)
	o.stopServices()
	steps.do("restore", func() { o.run(t, "restore.md", "restore") })
	steps.do("migrate", func() { o.run(t, "after-restore.md", "migrate") })
	steps.do("revoke all grants", func() { o.run(t, "after-restore.md", "grants") })
	steps.do("end tokens, sign-ins and keys", func() {
		o.run(t, "after-restore.md", "tokens")
		o.run(t, "after-restore.md", "signing-keys")
		o.run(t, "after-restore.md", "nothing-lives")
	})
	steps.do("start the services", func() { o.startServices(t) })
	o.Database.Reconnect()
	o.wantsNothing(t, e)
}

// addGrants adds grants of the demo's connector. Their foreign keys are not checked one by one, which takes minutes.
func (o *operator) addGrants(t *testing.T, grants int) {
	t.Helper()
	address := o.address(t, o.running.Postgres.URL)
	address.Path = o.address(t, o.running.DatabaseURL).Path
	superuser, err := pgx.Connect(t.Context(), address.String())
	must(t, err)
	defer func() { _ = superuser.Close(context.WithoutCancel(t.Context())) }()
	_, err = superuser.Exec(t.Context(), "set session_replication_role = replica")
	must(t, err)
	d := o.Demo
	added, err := superuser.Exec(t.Context(), manyGrants, d.Clients.Connector.ClientID, d.Users.Owner.ID,
		d.Workspaces.Main.ID, d.Clients.Connector.Resource, grants)
	must(t, err)
	if added.RowsAffected() != int64(grants) {
		t.Fatalf("%d grants", added.RowsAffected())
	}
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
