package postgres

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

func acceptImport(ctx context.Context, store *Store, workspaceID uuid.UUID) (id uuid.UUID, err error) {
	_, err = store.Once(
		ctx,
		rest.Key{},
		func(ctx context.Context, w programme.Writer) (a rest.Answer, err error) {
			id, err = w.AcceptImport(ctx, workspaceID, uuid.New(), "name\nx\n")
			return a, err
		},
	)
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
		id := orFail(acceptImport(t.Context(), store, workspaceID))(t)
		of[id] = workspaceID
	}
	next := func() uuid.UUID {
		t.Helper()
		if found, err := store.ProcessImport(t.Context()); !found || err != nil {
			t.Fatalf("%v %v", found, err)
		}
		for id, workspaceID := range of {
			if i, err := store.Import(t.Context(), workspaceID, id); err != nil ||
				i.Status == programme.ImportProcessed {
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
		orFail(acceptImport(t.Context(), store, workspaceID))(t)
	}
	workspaces, err := store.workspacesInTurn(t.Context())
	if err != nil || !slices.Equal(workspaces, []uuid.UUID{greedy, other}) {
		t.Fatalf("%v %v", workspaces, err)
	}
	tx := orFail(store.pool.Begin(t.Context()))(t)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	first := &transaction{Tx: tx, ctx: t.Context()}
	if taken := first.takeImport(workspaces); first.err != nil || taken == nil || taken.workspaceID != greedy {
		t.Fatalf("%+v %v", taken, first.err)
	}
	if found, err := store.ProcessImport(t.Context()); !found || err != nil ||
		w.Count("select count(*) from resource.programmes where tenant_id = $1", other) != 1 {
		t.Errorf("the import of the other workspace is not taken: %v %v", found, err)
	}
	if found, err := store.ProcessImport(t.Context()); found || err != nil {
		t.Errorf("a second worker takes an import of the same workspace: %v %v", found, err)
	}
}

func TestImports_LimitsWaitingPerWorkspace(t *testing.T) {
	t.Parallel()
	w, store := ownStore(t)
	greedy := w.Workspace()
	w.Exec(`insert into resource.imports (id, tenant_id, user_id, content)
		select gen_random_uuid(), $1, gen_random_uuid(), 'name' from generate_series(1, $2::int)`,
		greedy, maxWaiting-1)
	if _, err := acceptImport(t.Context(), store, greedy); err != nil {
		t.Error(err)
	}
	if _, err := acceptImport(t.Context(), store, greedy); !errors.Is(err, programme.ErrImportsWait) {
		t.Errorf("one import beyond the limit: %v", err)
	}
	if _, err := acceptImport(t.Context(), store, w.Workspace()); err != nil {
		t.Errorf("import of another workspace: %v", err)
	}
	if _, err := store.ProcessImport(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := acceptImport(t.Context(), store, greedy); err != nil && w.Count(
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
	id := orFail(acceptImport(t.Context(), store, workspaceID))(t)
	for i := range maxTries {
		failed := waitingImport{id: id, workspaceID: workspaceID}
		if err := store.postpone(t.Context(), failed, io.ErrUnexpectedEOF); err != nil { // does not count as a try
			t.Fatal(err)
		}
		before, err := store.Import(t.Context(), workspaceID, id)
		if err != nil || before.Status != programme.ImportAccepted {
			t.Fatalf("after %d tries: %+v %v", i, before, err)
		}
		w.Exec("update resource.imports set try_at = now()")
		w.Exec(
			`create or replace function resource.next_moment(workspace uuid, list_name text, records integer default 1)
			returns timestamptz language plpgsql as $$ begin raise query_canceled; end $$`,
		)
		if found, err := store.ProcessImport(t.Context()); !found || err == nil {
			t.Fatalf("the import is written: %v %v", found, err)
		}
	}
	i, err := store.Import(t.Context(), workspaceID, id)
	if err != nil || i.Status != programme.ImportRejected || len(i.Errors) != 1 || i.Errors[0].Message != notWritten {
		t.Errorf("%+v %v", i, err)
	}
	if found, err := store.ProcessImport(t.Context()); found || err != nil {
		t.Errorf("the rejected import is tried again: %v %v", found, err)
	}
}

// The time of the import is over when it is postponed.
func TestImports_OutOfTimeIsPostponed(t *testing.T) {
	t.Parallel()
	w, store := newStore(t)
	workspaceID := w.Workspace()
	id := orFail(acceptImport(t.Context(), store, workspaceID))(t)
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	must(t, store.postpone(ctx, waitingImport{id: id, workspaceID: workspaceID}, ctx.Err()))
	w.Wants(1, "select tries from resource.imports where id = $1 and try_at > now()", id)
}
