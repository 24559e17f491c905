package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/devkit/await"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

// create adds a programme.
func create(ctx context.Context, store *Store, workspaceID uuid.UUID) (made programme.Programme, err error) {
	err = write(ctx, store, func(ctx context.Context, w programme.Writer) (err error) {
		made, err = w.Create(ctx, workspaceID, draft("Winter shelter"))
		return err
	})
	return made, err
}

// P6: while a record is written but not committed, no other record of the workspace becomes visible with a later
// time.
func TestProgrammes_BecomeVisibleInOrderOfTime(t *testing.T) {
	t.Parallel()
	w, store := newStore(t)
	workspaceID := w.Workspace()
	old := w.Programmes(workspaceID, 1)[0]
	for name, writes := range map[string]func() (programme.Programme, error){
		"a creation": func() (programme.Programme, error) { return create(context.Background(), store, workspaceID) },
		"a change": func() (p programme.Programme, err error) {
			edit := func(p programme.Programme) (programme.Programme, error) {
				p.Name += "!"
				return p, nil
			}
			err = write(context.Background(), store, func(ctx context.Context, w programme.Writer) (err error) {
				p, err = w.Replace(ctx, workspaceID, old, edit)
				return err
			})
			return p, err
		},
		"an import": func() (programme.Programme, error) { return importOne(store, workspaceID, insertLocked) },
		"a long import": func() (programme.Programme, error) {
			return importOne(store, workspaceID, store.insertAhead)
		},
	} {
		t.Run(name, func(t *testing.T) {
			tx := begin(t, store)
			first := orFail((&writing{tx: tx}).Create(t.Context(), workspaceID, draft("Winter shelter")))(t)
			second := make(chan programme.Programme, 1)
			go func() {
				p, err := writes()
				if err != nil {
					t.Error(err)
				}
				second <- p
			}()
			awaitLock(t, w, tx)
			if len(second) > 0 {
				t.Error("a record is visible before one with an earlier time")
			}
			must(t, tx.Commit(t.Context()))
			if p := <-second; !p.UpdatedAt.After(first.UpdatedAt) {
				t.Errorf("%v is not after %v", p.UpdatedAt, first.UpdatedAt)
			}
		})
	}
}

// A list is the Sink of a page.
type list []programme.Programme

func newList() programme.Sink { return new(list) }

// Take implements programme.Sink.
func (l *list) Take(p programme.Programme) bool {
	*l = append(*l, p)
	return true
}

func listed(page programme.Page) []programme.Programme {
	if found, ok := page.Sink.(*list); ok {
		return *found
	}
	return nil
}

// importOne adds a programme like an import.
func importOne(store *Store, workspaceID uuid.UUID, insert insertFunc) (programme.Programme, error) {
	err := inTransaction(context.Background(), store.pool, func(t *transaction) {
		insert(t, workspaceID, []programme.Upsert{{New: programme.Details{Name: "Imported", Status: programme.Draft}}})
	})
	page, _ := store.Page(context.Background(), programme.Query{WorkspaceID: workspaceID, Limit: 1, Into: newList})
	return listed(page)[0], err
}

// awaitLock waits until a session waits for a lock of tx.
func awaitLock(t *testing.T, w *postgrestest.Fixture, tx pgx.Tx) {
	t.Helper()
	const waiting = "select count(*) from pg_stat_activity where $1 = any (pg_blocking_pids(pid))"
	await.True(t, "a session waits for a lock of the transaction", func() bool {
		return w.Count(waiting, tx.Conn().PgConn().PID()) > 0
	})
}

func TestProgrammes_OtherWorkspacesDoNotWait(t *testing.T) {
	t.Parallel()
	w, store := newStore(t)
	workspaceID, other := w.Workspace(), w.Workspace()
	orFail((&writing{tx: begin(t, store)}).Create(t.Context(), workspaceID, draft("x")))(t)
	orFail(create(t.Context(), store, other))(t)
}

// A new time is later than every existing one, even if the server's clock was set back.
func TestProgrammes_TimesGrowWhenTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	w, store := newStore(t)
	workspaceID := w.Workspace()
	ids := w.Programmes(workspaceID, 2)
	w.Exec("update resource.programmes set updated_at = now() + interval '1 hour' where id = $1", ids[0])
	var last time.Time
	for range 3 {
		p := orFail(create(t.Context(), store, workspaceID))(t)
		if ahead := time.Until(p.CreatedAt); !p.CreatedAt.After(last) || !p.CreatedAt.Equal(p.UpdatedAt) ||
			ahead < 50*time.Minute {
			t.Errorf("%v follows %v", p.CreatedAt, last)
		}
		last = p.CreatedAt
	}
}

// The rows of an import have distinct times in the order of the file: a client that continues with the newest time
// gets only one of them again, not the whole import.
func TestImport_RowsHaveTimesInTheirOrder(t *testing.T) {
	t.Parallel()
	w, store := newStore(t)
	rows := make([]programme.Upsert, 150)
	for i := range rows {
		rows[i].New = programme.Details{Name: fmt.Sprint(i), Status: programme.Draft}
	}
	day := programme.DateOf(time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC))
	rows[7].New.StartsOn, rows[7].New.Summary = day, "Summary"
	for name, insert := range map[string]insertFunc{"short": insertLocked, "long": store.insertAhead} {
		t.Run(name, func(t *testing.T) {
			workspaceID := w.Workspace()
			before := orFail(create(t.Context(), store, workspaceID))(t)
			must(t, inTransaction(t.Context(), store.pool, func(tx *transaction) { insert(tx, workspaceID, rows) }))
			page, err := store.Page(t.Context(), programme.Query{WorkspaceID: workspaceID, Limit: 200, Into: newList})
			if err != nil || len(listed(page)) != 151 || listed(page)[150] != before {
				t.Fatalf("%d %v", len(listed(page)), err)
			}
			for i, p := range listed(page)[:150] {
				if p.Name != fmt.Sprint(149-i) || !p.CreatedAt.After(listed(page)[i+1].CreatedAt) ||
					!p.UpdatedAt.Equal(p.CreatedAt) {
					t.Errorf("%d: %+v", i, p)
				}
			}
			if p := listed(page)[149-7]; p.StartsOn != day || p.EndsOn != "" || p.Summary != "Summary" {
				t.Errorf("%+v", p)
			}
		})
	}
}
