package postgres_test

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

func TestMigrateJobs_CreatesQueueForServiceRoleOnly(t *testing.T) {
	t.Parallel()
	w := postgrestest.New(t)
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			if err := postgres.MigrateJobs(context.Background(), w.Database.Owner); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if err := postgres.MigrateJobs(context.Background(), w.Database.Owner); err != nil {
		t.Errorf("a second time: %v", err)
	}
	service, err := pgx.Connect(context.Background(), w.Database.Resourceapi)
	if err != nil {
		t.Fatal("connect as the service")
	}
	defer func() { _ = service.Close(context.Background()) }()
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
	other, err := pgx.Connect(context.Background(), w.Database.Authserver)
	if err != nil {
		t.Fatal("connect as authserver")
	}
	defer func() { _ = other.Close(context.Background()) }()
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
