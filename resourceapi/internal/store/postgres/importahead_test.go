package postgres

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

// heldImport is an import of 600 programmes, each try of which blocks when most of its programmes are inserted.
type heldImport struct {
	t           *testing.T
	fixture     *postgrestest.Fixture
	store       *Store
	workspaceID uuid.UUID
	tries       int
	ended       chan error
}

func newHeldImport(t *testing.T) *heldImport {
	t.Helper()
	w, store := ownStore(t)
	i := &heldImport{t: t, fixture: w, store: store, workspaceID: w.Workspace(), ended: make(chan error, 1)}
	w.Exec("create sequence resource.tries")
	w.Exec(`create function resource.hold() returns trigger language plpgsql security definer set lock_timeout = 0 as $$
		begin perform pg_advisory_xact_lock(1000 + nextval('resource.tries')); return new; end $$`)
	w.Exec(
		"create trigger held before insert on resource.programmes for each row when (new.name = 'Held') execute " +
			"function resource.hold()",
	)
	w.Exec("insert into resource.imports (id, tenant_id, user_id, content) values (gen_random_uuid(), $1, $1, $2)",
		i.workspaceID, "name\n"+strings.Repeat("Row\n", 599)+"Held\n")
	w.Exec("select pg_advisory_lock(1000 + n) from generate_series(1, 3) n")
	go func() {
		_, err := i.store.ProcessImport(t.Context())
		i.ended <- err
	}()
	return i
}

// awaitTry waits until the next try blocks.
func (i *heldImport) awaitTry() {
	i.t.Helper()
	i.tries++
	await.True(i.t, fmt.Sprintf("try %d begins", i.tries), func() bool {
		select {
		case err := <-i.ended:
			i.t.Fatalf("the import ended before try %d: %v", i.tries, err)
		default:
		}
		return i.fixture.Count(
			`select count(*) from `+testkit.Locks+`
				where locktype = 'advisory' and not granted and objid = 1000 + $1::int`,
			i.tries,
		) > 0
	})
}

func (i *heldImport) release() { i.fixture.Exec("select pg_advisory_unlock(1000 + $1::int)", i.tries) }

// create adds a programme.
func (i *heldImport) create() programme.Programme {
	i.t.Helper()
	p := orFail(create(i.t.Context(), i.store, i.workspaceID))(i.t)
	return p
}

// overtake adds a programme with the time that it would get a minute later.
func (i *heldImport) overtake() {
	i.t.Helper()
	i.fixture.Exec("update resource.programmes set created_at = created_at + interval '1 minute' where id = $1",
		i.create().ID)
}

// expectLatest checks that the import was done once, with times later than those of the other programmes, and that
// later writes get later times.
func (i *heldImport) expectLatest() {
	i.t.Helper()
	must(i.t, <-i.ended)
	const imported = "select count(*) from resource.programmes where name in ('Row', 'Held')"
	if n := i.fixture.Count(imported + ` and created_at > (
		select max(created_at) from resource.programmes where name not in ('Row', 'Held'))`); n != 600 {
		i.t.Errorf("%d of 600 programmes are later than the existing ones", n)
	}
	if later := i.create().CreatedAt; i.fixture.Count(imported+" and created_at < $1", later) != 600 {
		i.t.Error("a later write has an earlier time")
	}
}

// The list is not locked while a long import inserts its programmes, and records still become visible in the order of
// their times (F15).
func TestImport_LongImportDoesNotBlockWrites(t *testing.T) {
	testkit.SkipIfDistributed(t, "Citus refuses the triggers of this test")
	t.Parallel()
	i := newHeldImport(t)
	i.awaitTry()
	i.create()
	i.release()
	i.expectLatest()
	const ahead = "select count(*) from resource.programmes where created_at > clock_timestamp() + $1::interval"
	if n := i.fixture.Count(ahead, leadTime); n > 0 {
		t.Errorf("%d programmes are too far ahead of the clock", n)
	}
	if i.tries != 1 {
		t.Errorf("%d tries", i.tries)
	}
}

// A long import that takes longer than estimated starts again if a write got a later time. In the end it is inserted
// with the list locked.
func TestImport_OvertakenImportIsRetried(t *testing.T) {
	testkit.SkipIfDistributed(t, "Citus refuses the triggers of this test")
	t.Parallel()
	i := newHeldImport(t)
	i.awaitTry()
	i.overtake()
	i.release()
	i.awaitTry()
	i.overtake()
	i.release()
	i.awaitTry()
	hasty := openWith(t, i.fixture, Limits{Connections: 4}) // waits for a lock no longer than it must
	if _, err := create(t.Context(), hasty, i.workspaceID); err == nil {
		t.Error("the list is not locked")
	}
	i.release()
	i.expectLatest()
}
