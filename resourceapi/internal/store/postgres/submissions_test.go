package postgres

import (
	"context"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

func TestMigrateJobs_CreatesQueueForServiceRoleOnly(t *testing.T) {
	t.Parallel()
	w := postgrestest.New(t)
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			if err := MigrateJobs(context.Background(), w.Database.Owner); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if err := MigrateJobs(context.Background(), w.Database.Owner); err != nil {
		t.Errorf("a second time: %v", err)
	}
	service := postgrestest.Connect(t, w.Database.Resourceapi)
	if _, err := service.Exec(context.Background(), "delete from river.river_job"); err != nil {
		t.Error(err)
	}
	for _, forbidden := range []string{
		"create table river.mine (id int)", "drop table river.river_job",
		"select * from account.tenant_modules", "select * from account.users",
	} {
		if _, err := service.Exec(context.Background(), forbidden); err == nil {
			t.Errorf("the service role may: %s", forbidden)
		}
	}
	other := postgrestest.Connect(t, w.Database.Authserver)
	for _, forbidden := range []string{
		"select * from river.river_job",
		"select * from resource.submissions",
		"select * from account.module_state(gen_random_uuid(), 'engage')",
	} {
		if _, err := other.Exec(context.Background(), forbidden); err == nil {
			t.Errorf("authserver may: %s", forbidden)
		}
	}
}

// A submission whose answers cannot be decoded is rejected, so that its job ends.
func TestReject_DoesNotReadAnswers(t *testing.T) {
	t.Parallel()
	w, store := newStore(t)
	workspaceID, form, id := w.Workspace(), uuid.New(), uuid.New()
	w.Exec(`insert into resource.forms (id, tenant_id, embed_key, title, fields, allowed_origins, created_by)
		values ($1, $2, $1::uuid::text, 'x', '[]', '{}', gen_random_uuid())`, form, workspaceID)
	w.Exec(`insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped)
		values ($1, $2, $3, gen_random_uuid(), '"no object"', '[]', false)`, id, workspaceID, form)
	if err := store.Engage(nil).Process(t.Context(), workspaceID, id); err == nil {
		t.Error("the submission was processed")
	}
	for range 2 {
		must(t, store.Engage(nil).Reject(t.Context(), workspaceID, id, "It cannot be read."))
	}
	w.Wants(1, `select count(*) from resource.submissions where tenant_id = $1 and status = 'rejected'
		and reasons = '["It cannot be read."]'`, workspaceID)
}
