package postgres

import (
	"testing"
	"time"

	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

func TestJobs_CountsByStateAndReportsOldestWait(t *testing.T) {
	t.Parallel()
	w := postgrestest.NewWithJobs(t, MigrateJobs)
	store := open(t, w)
	wants := func(oldest time.Duration, available, running int) {
		t.Helper()
		byState, waited, err := store.Jobs(t.Context())
		if err != nil || byState["available"] != available || byState["running"] != running ||
			byState["completed"] != 0 {
			t.Errorf("%v %v", byState, err)
		}
		if waited < oldest || waited > oldest+10*time.Minute {
			t.Errorf("the oldest has waited %v, want %v", waited, oldest)
		}
	}
	wants(0, 0, 0)
	w.Exec(
		`insert into river.river_job
			(args, state, kind, max_attempts, scheduled_at, attempt, attempted_at, finalized_at) values
		('{}', 'running', 'x', 9, now() - interval '9 hours', 1, now(), null),
		('{}', 'completed', 'x', 9, now() - interval '9 hours', 1, now(), now()),
		('{}', 'retryable', 'x', 9, now() + interval '1 hour', 1, now(), null)`,
	)
	wants(0, 0, 1)
	w.Exec(
		`insert into river.river_job (args, state, kind, max_attempts, scheduled_at) values
		('{}', 'available', 'x', 9, now() - interval '1 hour'), ('{}', 'available', 'x', 9, now())`,
	)
	wants(time.Hour, 2, 1)
	// The job is due, and no worker makes it available.
	w.Exec(`update river.river_job set scheduled_at = now() - interval '2 hours' where state = 'retryable'`)
	wants(2*time.Hour, 2, 1)
}
