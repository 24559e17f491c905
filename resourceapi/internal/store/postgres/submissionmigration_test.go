package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/migrate"

	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

// earlierMigrations are the migrations before a number.
type earlierMigrations struct {
	fs.FS
	number string
}

func (e earlierMigrations) ReadDir(name string) ([]fs.DirEntry, error) {
	all, err := fs.ReadDir(e.FS, name)
	var some []fs.DirEntry
	for _, file := range all {
		if file.Name() < e.number {
			some = append(some, file)
		}
	}
	return some, err
}

// beforeSubmissionMonths returns a database in which submissions are not partitioned, with a form.
func beforeSubmissionMonths(t *testing.T) (w *postgrestest.Fixture, workspaceID, form uuid.UUID) {
	t.Helper()
	testkit.SkipIfDistributed(t, "the schema is created again")
	w = postgrestest.New(t)
	w.Exec("drop schema resource cascade")
	w.Exec("drop table goose_resourceapi")
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		t.Fatal(err)
	}
	before := migrate.Migrations{Files: earlierMigrations{files, "00150"}, Table: "goose_resourceapi"}
	if _, err := before.Up(t.Context(), w.Database.Owner); err != nil {
		t.Fatal(err)
	}
	workspaceID = w.Workspace()
	return w, workspaceID, addForm(w, workspaceID)
}

// addForm adds a form without fields.
func addForm(w *postgrestest.Fixture, workspaceID uuid.UUID) uuid.UUID {
	form := uuid.New()
	w.Exec(`insert into resource.forms (id, tenant_id, embed_key, title, fields, allowed_origins)
		values ($1, $2, $1::uuid::text, 'x', '[]', '{}')`, form, workspaceID)
	return form
}

// An earlierService adds, reads and finishes submissions with the statements of the previous release.
type earlierService struct {
	*pgx.Conn
	workspaceID, form uuid.UUID
}

// insert adds a submission with a time that at returns, with the form's list locked.
func (s earlierService) insert(ctx context.Context, id, token uuid.UUID, at func(time.Time) time.Time) error {
	return pgx.BeginFunc(ctx, s.Conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `select count(*) from (
			select from resource.submissions where tenant_id = $1 and status = 'accepted' limit $2) w`,
			s.workspaceID, 500); err != nil {
			return err
		}
		var moment time.Time
		err := tx.QueryRow(ctx, "select resource.next_moment($1, $2, $3)", s.workspaceID, s.form.String(), 1).
			Scan(&moment)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
			insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped, created_at)
			values ($1, $2, $3, $4, $5, $6, $7, $8)`,
			id, s.workspaceID, s.form, token, "{}", "[]", false, at(moment))
		return err
	})
}

func asMoment(moment time.Time) time.Time { return moment }

// work adds and finishes a submission and sends another one with its token.
func (s earlierService) work(ctx context.Context) error {
	id, token := uuid.New(), uuid.New()
	if err := s.insert(ctx, id, token, asMoment); err != nil {
		return fmt.Errorf("insert: %w", err)
	}
	err := s.insert(ctx, uuid.New(), token, asMoment)
	if !refusedBy(err, uniqueViolation, "submissions") {
		return fmt.Errorf("the token is used again: %w", err)
	}
	tag, err := s.Exec(ctx, `
		update resource.submissions set status = 'rejected', reasons = $3, finished_at = $4
		where tenant_id = $1 and id = $2`, s.workspaceID, id, "[]", time.Now())
	if err == nil && tag.RowsAffected() != 1 {
		err = errors.New("the submission is not found")
	}
	return err
}

// Submissions are partitioned while the previous release accepts and finishes them: none is refused or lost.
func TestSubmissionMonths_MigrationRunsWhilePreviousReleaseWorks(t *testing.T) {
	t.Parallel()
	w, workspaceID, form := beforeSubmissionMonths(t)
	const old = 5000
	w.Exec(`insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped, created_at)
		select gen_random_uuid(), $1, $2, gen_random_uuid(), '{}', '[]', false, now() - make_interval(hours => n)
		from generate_series(1, $3::integer) n`, workspaceID, form, old)
	w.Exec("insert into resource.list_locks (tenant_id, list) values ($1, $2)", workspaceID, form.String())
	w.Exec(`update resource.submissions set status = 'rejected', finished_at = now()
		where created_at between now() - interval '41 days' and now() - interval '40 days'`)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var added atomic.Int64
	work, _ := errgroup.WithContext(ctx)
	for range 3 {
		own := addForm(w, workspaceID)
		work.Go(func() error {
			connection, err := pgx.Connect(t.Context(), w.Database.Resourceapi)
			if err != nil {
				return err
			}
			defer func() { _ = connection.Close(context.WithoutCancel(t.Context())) }()
			for ctx.Err() == nil && err == nil {
				err = earlierService{connection, workspaceID, own}.work(t.Context())
				added.Add(1)
			}
			return err
		})
	}
	await.NoError(t, func() error { // on a busy machine it may wait too long for a table, and is run again
		_, err := Migrate(t.Context(), w.Database.Owner)
		return err
	})
	before := added.Load()
	await.True(t, "submissions are added after the migration", func() bool { return added.Load() >= before+3 })
	stop()
	if err := work.Wait(); err != nil {
		t.Errorf("a submission was refused: %v", err)
	}
	want := old + int(added.Load())
	if n := w.Count("select count(*) from resource.submissions where tenant_id = $1", workspaceID); n != want {
		t.Errorf("%d submissions, want %d", n, want)
	}
	if n := w.Count("select count(*) from account.months_of('resource.submissions')"); n != 2 {
		t.Errorf("%d partitions", n)
	}
	if n := w.Count("select count(*) from resource.list_locks where late_at is not null"); n != 1 {
		t.Errorf("%d forms have late submissions", n)
	}
	if before == 0 || added.Load() == before {
		t.Errorf("%d submissions were added before the migration ended, and %d in all", before, added.Load())
	}
}

// A migration that fails because its table is in use leaves no constraint that would refuse later submissions.
func TestSubmissionMonths_FailedMigrationLeavesNoConstraint(t *testing.T) {
	t.Parallel()
	w, workspaceID, form := beforeSubmissionMonths(t)
	w.Exec(`alter table resource.submissions add constraint submissions_earlier
		check (created_at < '2000-01-01') not valid`) // as an earlier attempt has left it
	reader, err := pgx.Connect(t.Context(), w.Database.Owner)
	if err != nil {
		t.Fatal(err)
	}
	// While a row of a form is locked, the migration can add the constraint, but not rename the table.
	_, err = reader.Exec(t.Context(), "begin; select 1 from resource.forms for update")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Migrate(t.Context(), w.Database.Owner); err == nil {
		t.Error("the migration succeeded although a table is in use")
	}
	if err := reader.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n := w.Count("select count(*) from pg_constraint where conname = 'submissions_earlier'"); n != 0 {
		t.Error("the constraint is left")
	}
	w.Exec(`insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped)
		values ($1, $2, $3, $1, '{}', '[]', false)`, uuid.New(), workspaceID, form)
	if _, err := Migrate(t.Context(), w.Database.Owner); err != nil {
		t.Error(err)
	}
	if n := w.Count("select count(*) from resource.submissions"); n != 1 {
		t.Errorf("%d submissions", n)
	}
}
