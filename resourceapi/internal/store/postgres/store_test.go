package postgres

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

func TestServiceRole_HasNoOtherRights(t *testing.T) {
	t.Parallel()
	_, store := newStore(t)
	for _, forbidden := range []string{
		"select * from account.users",
		"select * from account.personal_access_tokens",
		"update account.memberships set permissions = '{}'",
		"drop table resource.programmes",
		"create table resource.mine (x int)",
		"create table public.mine (x int)",
		"delete from goose_resourceapi",
	} {
		if _, err := store.pool.Exec(t.Context(), forbidden); err == nil || !strings.Contains(err.Error(), "42501") {
			t.Errorf("%s: %v", forbidden, err)
		}
	}
}

func TestOpen_ErrorDoesNotQuoteURL(t *testing.T) {
	t.Parallel()
	const url = "postgres://user:swordfish@host:port:x/db"
	_, err := Open(t.Context(), credential.Fixed(url), Limits{Connections: 2})
	_, migrateErr := Migrate(t.Context(), url)
	if err == nil || migrateErr == nil || strings.Contains(err.Error()+migrateErr.Error(), "swordfish") {
		t.Errorf("%v, %v", err, migrateErr)
	}
}

// P5: an import stays waiting if its worker dies, and the next worker does it once.
func TestP5_ImportIsDoneOnceAfterFailure(t *testing.T) {
	testkit.SkipIfDistributed(t, "Citus refuses the triggers of this test")
	t.Parallel()
	w, store := ownStore(t)
	workspaceID := w.Workspace()
	var id uuid.UUID
	_, err := store.Once(
		t.Context(),
		rest.Key{},
		func(ctx context.Context, writer programme.Writer) (a rest.Answer, err error) {
			id, err = writer.AcceptImport(ctx, workspaceID, w.User(), "name\n"+strings.Repeat("x\n", 500))
			return a, err
		},
	)
	if err != nil {
		t.Fatal(err)
	}

	// The insert fails half way, as if the server had stopped: none of its rows stay, and the import waits.
	w.Exec(`create function resource.fail() returns trigger language plpgsql as $$ begin
		if (select count(*) from resource.programmes) >= 0 and new.name = 'x' and random() < 0.02
		then raise exception 'gone' using errcode = '57P01'; end if; return new; end $$`)
	w.Exec("create trigger fail before insert on resource.programmes for each row execute function resource.fail()")
	found, err := store.ProcessImport(t.Context())
	if !found || err == nil {
		t.Fatalf("%v, %v", found, err)
	}
	w.Wants(0, "select count(*) from resource.programmes")
	if i, err := store.Import(t.Context(), workspaceID, id); err != nil || i.Status != programme.ImportAccepted {
		t.Errorf("%+v, %v", i, err)
	}
	if found, err := store.ProcessImport(t.Context()); found || err != nil {
		t.Errorf("tried again at once: %v, %v", found, err)
	}
	w.Exec("drop trigger fail on resource.programmes")
	w.Exec("update resource.imports set try_at = now()")

	done := make(chan bool, 8)
	for range cap(done) {
		go func() {
			found, err := store.ProcessImport(context.Background())
			if err != nil {
				t.Errorf("%v", err)
			}
			done <- found
		}()
	}
	times := 0
	for range cap(done) {
		if <-done {
			times++
		}
	}
	i, err := store.Import(t.Context(), workspaceID, id)
	if n := w.Count("select count(*) from resource.programmes"); times != 1 || n != 500 || err != nil ||
		i.Imported != 500 || i.Status != programme.ImportProcessed {
		t.Errorf("%d workers did it, %d programmes, %+v, %v", times, n, i, err)
	}
}

func TestProcessImport_SkipsLockedImport(t *testing.T) {
	t.Parallel()
	w, store := ownStore(t)
	for range 2 {
		w.Exec(
			"insert into resource.imports (id, tenant_id, user_id, content) values (gen_random_uuid(), " +
				"gen_random_uuid(), gen_random_uuid(), 'name')",
		)
	}
	w.Exec("begin")
	w.Exec("select 1 from resource.imports order by try_at limit 1 for update")
	if found, err := store.ProcessImport(t.Context()); !found || err != nil {
		t.Errorf("%v, %v", found, err)
	}
	if found, err := store.ProcessImport(t.Context()); found || err != nil {
		t.Errorf("the import locked by another worker: %v, %v", found, err)
	}
	w.Exec("rollback")
}

func TestMigrate_AppliesMigrationsOnce(t *testing.T) {
	t.Parallel()
	w := postgrestest.New(t)
	w.Exec("drop schema resource cascade")
	w.Exec("drop table goose_resourceapi")
	results := make(chan error, 3)
	for range cap(results) {
		go func() {
			_, err := Migrate(context.Background(), w.Database.Owner)
			results <- err
		}()
	}
	for range cap(results) {
		if err := <-results; err != nil {
			t.Errorf("%v", err)
		}
	}
	workspaceID := w.Workspace()
	w.Programmes(workspaceID, 1)
	page, err := open(t, w).Page(t.Context(), programme.Query{WorkspaceID: workspaceID, Limit: 5, Into: newList})
	if err != nil || len(listed(page)) != 1 || listed(page)[0].Version != 1 {
		t.Errorf("%+v, %v", page, err)
	}
	if applied, err := Migrate(t.Context(), w.Database.Owner); err != nil || len(applied) > 0 {
		t.Errorf("a second time: %v, %v", applied, err)
	}
}
