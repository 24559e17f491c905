package worker

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// F17: a workspace with a flooded form delays only itself. A round processes a batch of each workspace.
func TestRound_ProcessesBatchOfEachWorkspace(t *testing.T) {
	w := postgrestest.New(t)
	opened, err := postgres.Open(t.Context(), w.URL(), postgres.Limits{Connections: 8, Wait: testkit.StoreWait})
	testkit.Must(t, err)
	t.Cleanup(opened.Close)
	store := opened.Engage()
	add := func(n int, age string) (workspaceID uuid.UUID) {
		workspaceID = w.Workspace()
		form := uuid.New()
		w.Exec(`insert into resource.forms (id, tenant_id, embed_key, title, fields, allowed_origins, created_by)
			values ($1, $2, $1::uuid::text, 'T', '[]', '{}', $2)`, form, workspaceID)
		w.Exec(`insert into resource.submissions
			(id, tenant_id, form_id, token_id, answers, consents, trapped, created_at)
			select gen_random_uuid(), $1, $2, gen_random_uuid(), '{}', '[]', false, now() - $4::text::interval
			from generate_series(1, $3)`, workspaceID, form, n, age)
		return workspaceID
	}
	flooded := add(250, "1 hour")
	few := []uuid.UUID{add(1, "0"), add(2, "0"), add(3, "0"), add(1, "0"), add(1, "0")}
	old := add(1, "70 days") // no process ran for so long
	left := func(workspaceID uuid.UUID) int {
		return w.Count(`select count(*) from resource.submissions where tenant_id = $1 and status = 'accepted'`,
			workspaceID)
	}
	p := newProcessor(store, slog.New(slog.DiscardHandler))
	runs := func(since time.Time, want bool) {
		t.Helper()
		err := p.round(t.Context(), since)
		_ = p.group.Wait() // its functions return no error
		if more := len(p.more) > 0; more != want || err != nil {
			t.Errorf("more wait: %t, %v", more, err)
		}
		p.more = make(chan struct{}, 1)
	}
	recent := time.Now().Add(-lookBack)
	runs(recent, true)
	if n := left(flooded); n != 150 {
		t.Errorf("%d submissions of the flooded form wait, want 150", n)
	}
	for _, workspaceID := range few {
		if n := left(workspaceID); n != 0 {
			t.Errorf("%d submissions of another workspace wait", n)
		}
	}
	runs(recent, true)
	runs(recent, false)
	if left(flooded) != 0 || left(old) != 1 {
		t.Errorf("%d and %d submissions wait", left(flooded), left(old))
	}
	runs(time.Time{}, false)
	if left(old) != 0 {
		t.Error("a submission of an earlier month waits")
	}
}
