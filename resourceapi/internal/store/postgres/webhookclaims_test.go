package postgres

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

// addEndpoint adds an endpoint that has been sent no event. columns are further settings of it.
func addEndpoint(w *postgrestest.Fixture, workspaceID, user uuid.UUID, columns string) uuid.UUID {
	id := uuid.New()
	w.Exec(`insert into account.webhooks (id, tenant_id, user_id, url, types, secret, secret_key, position, created_at)
		values ($1, $2, $3, 'https://hooks.example.org', '{programme.created}', '', '', 0, now())`,
		id, workspaceID, user)
	if columns != "" {
		w.Exec("update account.webhooks set "+columns+" where tenant_id = $1 and id = $2", workspaceID, id)
	}
	return id
}

// idsOf returns the endpoints of claims, in order.
func idsOf(claimed []delivery.Claim) (ids []string) {
	for _, one := range claimed {
		ids = append(ids, one.ID.String())
	}
	slices.Sort(ids)
	return ids
}

// An endpoint is claimed by one worker until it is released, or until the claim ends because its worker died. A release
// after that does not end the claim of another. The previous release leaves it out meanwhile.
func TestClaims_OneWorkerSendsToAnEndpoint(t *testing.T) {
	t.Parallel()
	w, opened := newStore(t)
	workspaceID, user := w.Workspace(), w.User()
	var all []string
	for range 8 {
		all = append(all, addEndpoint(w, workspaceID, user, "").String())
	}
	slices.Sort(all)
	w.Exec(addEvents, workspaceID, "programme.created", 1)
	store := opened.Webhooks()
	claims := func(when string, want ...string) {
		t.Helper()
		if got := idsOf(claim(t, store, workspaceID)); !slices.Equal(got, want) {
			t.Errorf("%s: claimed %v, want %v", when, got, want)
		}
	}
	claims("before the event had a sequence")
	workspaces, unread, err := store.WorkspacesWithWebhooks(t.Context(), uuid.Nil, 1000)
	if err != nil || !slices.Contains(workspaces, workspaceID) || !slices.Contains(unread, workspaceID) {
		t.Errorf("the workspace is not among %v or, unread, %v (%v)", workspaces, unread, err)
	}
	orFail(opened.NumberEvents(t.Context(), workspaceID))(t)
	taken := make([][]delivery.Claim, 8)
	var workers sync.WaitGroup
	for i := range taken {
		workers.Go(func() { taken[i] = claim(t, store, workspaceID) })
	}
	workers.Wait()
	if ids := idsOf(slices.Concat(taken...)); !slices.Equal(ids, all) {
		t.Fatalf("eight workers claimed %v of %v", ids, all)
	}
	w.Wants(0, "select count(*) from account.webhooks_due(1000) where tenant = $1", workspaceID)
	first := slices.Concat(taken...)[0]
	must(t, store.ReleaseWebhook(t.Context(), first))
	claims("after a release", first.ID.String())
	w.Exec("update account.webhooks set claimed_until = now() where tenant_id = $1 and id = $2", workspaceID, first.ID)
	claims("after the claim ended", first.ID.String())
	must(t, store.ReleaseWebhook(t.Context(), first))
	claims("after the release of a claim that had ended")
}

// What is claimed has something to send, and its wait is over. Failing endpoints have a limit of their own. A delivery
// that a user requested is sent in any workspace, even to a disabled endpoint.
func TestClaims_OnlyWhatHasSomethingToSend(t *testing.T) {
	t.Parallel()
	w, opened := ownStore(t)
	store, workspaceID, user := opened.Webhooks(), w.Workspace(), w.User()
	const disabled = "enabled = false, reason = 'user', disabled_at = now()"
	quick, failing := addEndpoint(w, workspaceID, user, ""), addEndpoint(w, workspaceID, user, "failing_since = now()")
	asked := addEndpoint(w, workspaceID, user, disabled)
	for _, columns := range []string{disabled, "next_try_at = now() + interval '1 minute'", "position = 1"} {
		addEndpoint(w, workspaceID, user, columns)
	}
	w.Exec(addEvents, workspaceID, "programme.created", 1)
	orFail(opened.NumberEvents(t.Context(), workspaceID))(t)
	w.Exec(`insert into account.webhook_deliveries (id, tenant_id, webhook_id, cause, type)
		values (gen_random_uuid(), $1, $2, 'test', 'webhook.test')`, workspaceID, asked)
	for _, c := range []struct {
		workspaces     []uuid.UUID
		limit, failing int
		want           []delivery.Claim
	}{
		{[]uuid.UUID{workspaceID}, 0, 0, nil},
		{[]uuid.UUID{workspaceID}, 0, 5, []delivery.Claim{{ID: failing, WorkspaceID: workspaceID, Failing: true}}},
		{nil, 5, 5, []delivery.Claim{{ID: asked, WorkspaceID: workspaceID}}},
		{[]uuid.UUID{workspaceID}, 5, 5, []delivery.Claim{{ID: quick, WorkspaceID: workspaceID}}},
		{[]uuid.UUID{workspaceID}, 5, 5, nil},
	} {
		claimed := orFail(store.ClaimWebhooks(t.Context(), c.workspaces, time.Minute, c.limit, c.failing))(t)
		for i := range claimed {
			claimed[i].Until = time.Time{}
		}
		if !slices.Equal(claimed, c.want) {
			t.Errorf("of %v, at most %d and %d: claimed %+v, want %+v",
				c.workspaces, c.limit, c.failing, claimed, c.want)
		}
	}
}

// Of the endpoints of a workspace whose last attempt failed or was slow, 4 have a claim at once: few workspaces do not
// take the places of all.
func TestClaims_WorkspaceHasFewAtOnce(t *testing.T) {
	t.Parallel()
	w, opened := newStore(t)
	store, workspaceID, user := opened.Webhooks(), w.Workspace(), w.User()
	for range 5 {
		addEndpoint(w, workspaceID, user, "")
		addEndpoint(w, workspaceID, user, "slow = true")
		addEndpoint(w, workspaceID, user, "failing_since = now()")
	}
	w.Exec(addEvents, workspaceID, "programme.created", 1)
	orFail(opened.NumberEvents(t.Context(), workspaceID))(t)
	all := claim(t, store, workspaceID)
	failing := slices.IndexFunc(all, func(one delivery.Claim) bool { return one.Failing })
	if again := claim(t, store, workspaceID); len(all) != 9 || failing < 0 || len(again) > 0 {
		t.Fatalf("claimed %d, then %d", len(all), len(again))
	}
	must(t, store.ReleaseWebhook(t.Context(), all[failing]))
	if again := claim(t, store, workspaceID); len(again) != 1 || !again[0].Failing {
		t.Errorf("claimed %+v after a failing one was released", again)
	}
}

// Two transactions of endpoints change their rows in one order, whatever the order in which the steps came.
func TestSteps_ChangeEndpointsInOrder(t *testing.T) {
	t.Parallel()
	_, opened := newStore(t)
	var queued []byte
	one := func(n byte) step {
		return step{uuid.UUID{n}, func(*pgx.Batch, time.Time) { queued = append(queued, n) }}
	}
	_, err := opened.Webhooks().sendSteps(t.Context(), []step{one(200), one(3), one(7)})
	if err != nil || !slices.Equal(queued, []byte{3, 7, 200}) {
		t.Errorf("changed %v: %v", queued, err)
	}
}

// Endpoints share transactions. If the statements of one fail, those of the others are done.
func TestSteps_FailureOfOneDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	w, opened := newStore(t)
	store, workspaceID := opened.Webhooks(), w.Workspace()
	a, b := addEndpoint(w, workspaceID, w.User(), ""), addEndpoint(w, workspaceID, w.User(), "")
	move := func(id uuid.UUID, position any) step {
		return step{id, func(batch *pgx.Batch, _ time.Time) {
			batch.Queue("update account.webhooks set position = $3::text::bigint where tenant_id = $1 and id = $2",
				workspaceID, id, position)
		}}
	}
	failed, err := store.sendSteps(t.Context(), []step{move(a, "7"), move(a, "none"), move(b, "8")})
	if err != nil || failed[0] != nil || failed[1] == nil || failed[2] != nil {
		t.Errorf("%v, %v", failed, err)
	}
	w.Wants(2, `select count(*) from account.webhooks where tenant_id = $1 and position in (7, 8)`, workspaceID)
	if err := store.step(t.Context(), "move", a, move(a, "none").queue); err == nil || errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("a step that fails: %v", err)
	}
	tx := begin(t, opened)
	orFail(tx.Exec(t.Context(), "select from account.webhooks where tenant_id = $1 and id = $2 for update",
		workspaceID, a))(t)
	locked := step{a, func(batch *pgx.Batch, at time.Time) {
		batch.Queue("select set_config('lock_timeout', '10ms', true)")
		move(a, "10").queue(batch, at)
	}}
	failed, err = store.sendSteps(t.Context(), []step{move(b, "9"), locked})
	if err != nil || failed[0] != nil || failed[1] == nil {
		t.Errorf("while the row of one is locked: %v, %v", failed, err)
	}
	w.Wants(1, `select count(*) from account.webhooks where tenant_id = $1 and position = 9`, workspaceID)
}

// A statement on programmes writes an event for each of its rows that it changes, in the order of their times: in one
// statement, or with the function that an older schema of authserver has.
func TestEvents_StatementsWriteOneForEachRow(t *testing.T) {
	t.Parallel()
	w := postgrestest.New(t)
	want := []string{
		`programme.created {"id": "3"}`, `programme.created {"id": "2"}`, `programme.created {"id": "1"}`,
		`programme.updated {"id": "3", "changed": ["status", "summary"]}`,
		`programme.updated {"id": "1", "changed": ["summary"]}`,
		`programme.deleted {"id": "2"}`, `programme.deleted {"id": "1"}`,
	}
	if got := eventsOfProgrammes(t, w); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	w.Exec("drop function account.add_events")
	if got := eventsOfProgrammes(t, w); !slices.Equal(got, want) {
		t.Errorf("with the older schema: %q, want %q", got, want)
	}
}

// eventsOfProgrammes inserts, changes and deletes the programmes 1, 2 and 3 of a new workspace, with a statement each.
// It returns the events, with these numbers in place of the ids.
func eventsOfProgrammes(t *testing.T, w *postgrestest.Fixture) []string {
	t.Helper()
	workspaceID := w.Workspace()
	for _, statement := range []string{
		`insert into resource.programmes (id, tenant_id, name, status, updated_at)
			select md5(n || $1::uuid::text)::uuid, $1, 'Number ' || n, 'draft', now() - n * interval '1 second'
			from generate_series(1, 3) n`,
		`update resource.programmes set summary = case when name = 'Number 2' then '' else 'New' end,
			status = case when name = 'Number 3' then 'active' else 'draft' end where tenant_id = $1`,
		"update resource.programmes set updated_at = updated_at + interval '1 second' where tenant_id = $1", // no event
		"delete from resource.programmes where tenant_id = $1 and status = 'draft'",
		"delete from resource.programmes where tenant_id = $1 and status = 'draft'",
	} {
		w.Exec(statement, workspaceID)
	}
	rows := orFail(postgrestest.Connect(t, w.Database.Owner).Query(t.Context(), `select type || ' ' ||
			replace(replace(replace(data::text, md5('1' || $1::uuid::text)::uuid::text, '1'),
				md5('2' || $1::uuid::text)::uuid::text, '2'), md5('3' || $1::uuid::text)::uuid::text, '3')
		from account.events where tenant_id = $1 order by id`, workspaceID))(t)
	return orFail(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
}
