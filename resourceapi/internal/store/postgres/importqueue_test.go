package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

// acceptImport adds an import of programmes, whose names are lines.
func acceptImport(
	ctx context.Context, store *Store, workspaceID uuid.UUID, names string,
) (id uuid.UUID, err error) {
	err = write(ctx, store, func(ctx context.Context, w programme.Writer) (err error) {
		id, err = w.AcceptImport(ctx, workspaceID, programme.Importer{User: uuid.New()}, "name\n"+names)
		return err
	})
	return id, err
}

// F17: a workspace's import waits for at most one of another workspace, however many the other has.
func TestImports_WorkspacesTakeTurns(t *testing.T) {
	t.Parallel()
	w, store := ownStore(t)
	greedy, second, third := w.Workspace(), w.Workspace(), w.Workspace()
	of := map[uuid.UUID]uuid.UUID{}
	add := func(workspaceID uuid.UUID) {
		t.Helper()
		of[orFail(acceptImport(t.Context(), store, workspaceID, "x\n"))(t)] = workspaceID
	}
	next := func() uuid.UUID {
		t.Helper()
		processes(t, store, true)
		for id, workspaceID := range of {
			if i := orFail(store.Import(t.Context(), workspaceID, id))(t); i.Status == programme.ImportProcessed {
				delete(of, id)
				return workspaceID
			}
		}
		return uuid.Nil
	}
	for range 6 {
		add(greedy)
	}
	got := []uuid.UUID{next()}
	add(second)
	got = append(got, next(), next())
	add(second)
	add(third)
	for range 4 {
		got = append(got, next())
	}
	if want := []uuid.UUID{greedy, second, greedy, third, second, greedy, greedy}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestImports_OneWorkerPerWorkspace(t *testing.T) {
	t.Parallel()
	w, store := ownStore(t)
	greedy, other := w.Workspace(), w.Workspace()
	for _, workspaceID := range []uuid.UUID{greedy, greedy, greedy, other} {
		orFail(acceptImport(t.Context(), store, workspaceID, "x\n"))(t)
	}
	workspaces := orFail(store.workspacesInTurn(t.Context()))(t)
	if !slices.Equal(workspaces, []uuid.UUID{greedy, other}) {
		t.Fatalf("%v", workspaces)
	}
	first := &transaction{Tx: begin(t, store), ctx: t.Context()}
	if taken := first.takeImport(workspaces); first.err != nil || taken == nil || taken.workspaceID != greedy {
		t.Fatalf("%+v %v", taken, first.err)
	}
	processes(t, store, true)
	w.Wants(1, "select count(*) from resource.programmes where tenant_id = $1", other)
	processes(t, store, false) // a second worker takes no import of the same workspace
}

func TestImports_LimitsWaitingPerWorkspace(t *testing.T) {
	t.Parallel()
	w, store := ownStore(t)
	greedy := w.Workspace()
	w.Exec(`insert into resource.imports (id, tenant_id, user_id, content)
		select gen_random_uuid(), $1, gen_random_uuid(), 'name' from generate_series(1, $2::int)`,
		greedy, maxWaiting-1)
	orFail(acceptImport(t.Context(), store, greedy, "x\n"))(t)
	if _, err := acceptImport(t.Context(), store, greedy, "x\n"); !errors.Is(err, programme.ErrImportsWait) {
		t.Errorf("one import beyond the limit: %v", err)
	}
	orFail(acceptImport(t.Context(), store, w.Workspace(), "x\n"))(t)
	processes(t, store, true)
	if _, err := acceptImport(t.Context(), store, greedy, "x\n"); err != nil && w.Count(
		"select count(*) from resource.imports where tenant_id = $1 and status = 'accepted'",
		greedy,
	) < maxWaiting {
		t.Errorf("after one was processed: %v", err)
	}
}

func TestImports_RejectedAfterRepeatedFailures(t *testing.T) {
	t.Parallel()
	w, store := ownStore(t)
	workspaceID := w.Workspace()
	id := orFail(acceptImport(t.Context(), store, workspaceID, "x\n"))(t)
	for i := range maxTries {
		failed := waitingImport{id: id, workspaceID: workspaceID}
		must(t, store.postpone(t.Context(), failed, io.ErrUnexpectedEOF)) // does not count as a try
		if before := orFail(store.Import(t.Context(), workspaceID, id))(t); before.Status != programme.ImportAccepted {
			t.Fatalf("after %d tries: %+v", i, before)
		}
		w.Exec("update resource.imports set try_at = now()")
		w.Exec(`create or replace function
				resource.next_moment(workspace uuid, list_name text, records integer default 1)
			returns timestamptz language plpgsql as $$ begin raise query_canceled; end $$`)
		if found, err := store.ProcessImport(t.Context()); !found || err == nil {
			t.Fatalf("the import is written: %v %v", found, err)
		}
	}
	i := orFail(store.Import(t.Context(), workspaceID, id))(t)
	if i.Status != programme.ImportRejected || len(i.Errors) != 1 || i.Errors[0].Message != notWritten {
		t.Errorf("%+v", i)
	}
	processes(t, store, false)
}

// The time of the import is over when it is postponed.
func TestImports_OutOfTimeIsPostponed(t *testing.T) {
	t.Parallel()
	w, store := newStore(t)
	workspaceID := w.Workspace()
	id := orFail(acceptImport(t.Context(), store, workspaceID, "x\n"))(t)
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	must(t, store.postpone(ctx, waitingImport{id: id, workspaceID: workspaceID}, ctx.Err()))
	w.Wants(1, "select tries from resource.imports where id = $1 and try_at > now()", id) // the try counts
}

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
	testkit.SkipIfDistributed(t, "Citus refuses the triggers of this test")
	t.Parallel()
	w, store := ownStore(t)
	i := &heldImport{t: t, fixture: w, store: store, workspaceID: w.Workspace(), ended: make(chan error, 1)}
	w.Exec("create sequence resource.tries")
	w.Exec(`create function resource.hold() returns trigger language plpgsql security definer set lock_timeout = 0 as $$
		begin perform pg_advisory_xact_lock(1000 + nextval('resource.tries')); return new; end $$`)
	w.Exec(`create trigger held before insert on resource.programmes for each row when (new.name = 'Held')
		execute function resource.hold()`)
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
		return i.fixture.Count(`select count(*) from `+testkit.Locks+`
			where locktype = 'advisory' and not granted and objid = 1000 + $1::int`, i.tries) > 0
	})
}

func (i *heldImport) release() { i.fixture.Exec("select pg_advisory_unlock(1000 + $1::int)", i.tries) }

// create adds a programme.
func (i *heldImport) create() programme.Programme {
	i.t.Helper()
	return orFail(create(i.t.Context(), i.store, i.workspaceID))(i.t)
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

func TestWaitingSubmissions_CountsFailedAndReportsOldestWait(t *testing.T) {
	t.Parallel()
	w := postgrestest.New(t)
	store, workspaceID := open(t, w), w.Workspace()
	form := addForm(w, workspaceID)
	wants := func(oldest time.Duration, all, failed int) {
		t.Helper()
		gotAll, gotFailed, waited, err := store.WaitingSubmissions(t.Context())
		if err != nil || gotAll != all || gotFailed != failed || waited < oldest || waited > oldest+10*time.Minute {
			t.Errorf("%d %d %v %v, want %d %d %v", gotAll, gotFailed, waited, err, all, failed, oldest)
		}
	}
	wants(0, 0, 0)
	add := func(age, retry string) {
		id := uuid.New()
		addSubmission(w, workspaceID, form, id, age)
		w.Exec("update resource.submissions set retry_at = now() + nullif($2, '')::interval where id = $1", id, retry)
	}
	add("9 hours", "1 hour")
	wants(0, 1, 1)
	add("1 hour", "")
	wants(time.Hour, 2, 1)
	add("5 hours", "-2 hours") // failed once, and is due again
	wants(2*time.Hour, 3, 1)
	w.Exec("update resource.forms set erased_at = now() where id = $1", form) // its submissions are not processed
	wants(0, 0, 0)
}

// processes checks whether there was an import to process.
func processes(t *testing.T, store *Store, want bool) {
	t.Helper()
	if found, err := store.ProcessImport(t.Context()); found != want || err != nil {
		t.Fatalf("an import was processed: %t, %v, want %t", found, err, want)
	}
}
