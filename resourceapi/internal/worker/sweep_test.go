package worker

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

func TestSweep_AddsMissingJobs(t *testing.T) {
	w := postgrestest.NewWithJobs(t, postgres.MigrateJobs)
	store, err := postgres.Open(t.Context(), w.URL(), postgres.Limits{Connections: 4, Wait: testkit.StoreWait})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	workspaceID := w.Workspace()
	form, queued, lost, fresh := uuid.New(), uuid.New(), uuid.New(), uuid.New()
	w.Exec(`insert into resource.forms (id, tenant_id, embed_key, title, fields, allowed_origins, created_by)
		values ($1, $2, 'k', 'T', '[]', '{}', $2)`, form, workspaceID)
	for id, age := range map[uuid.UUID]string{queued: "2 minutes", lost: "2 minutes", fresh: "1 second"} {
		w.Exec(`insert into resource.submissions
			(id, tenant_id, form_id, token_id, answers, consents, trapped, created_at)
			values ($1, $2, $3, $1, '{}', '[]', false, now() - $4::text::interval)`, id, workspaceID, form, age)
	}
	pool, err := pgxpool.New(t.Context(), w.Database.Resourceapi)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	queue, err := NewQueue(riverpgxv5.New(pool), postgres.JobSchema)
	if err == nil {
		err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			return queue.Add(t.Context(), tx, workspaceID, queued, 0)
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Schema: postgres.JobSchema})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := sweep(t.Context(), client, store.Engage(queue)); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[uuid.UUID]int{queued: 1, lost: 1, fresh: 0} {
		if n := w.Count(`select count(*) from river.river_job
			where args->>'submission' = $1 and args->>'workspace' = $2`, id.String(), workspaceID.String()); n != want {
			t.Errorf("%d jobs, want %d", n, want)
		}
	}
}
