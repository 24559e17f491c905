package postgres

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

const addEvents = `select account.add_event($1, $2, gen_random_uuid(), null) from generate_series(1, $3::integer)`

// stepStore opens a store of the shared database with small steps, and adds a workspace.
func stepStore(t *testing.T) (w *postgrestest.Fixture, store *Store, workspaceID uuid.UUID) {
	t.Helper()
	w = shared(t).For(t)
	store = openWith(t, w, Limits{Connections: 4, Wait: testkit.StoreWait})
	store.steps = eventSteps{Number: 40, Examine: 100}
	return w, store, w.Workspace()
}

// readEvents reads a page of events of one kind of records.
func readEvents(
	ctx context.Context, s *Store, workspaceID uuid.UUID, after int64, subject string,
) (all []delivery.Event, next int64, err error) {
	next, err = s.Events(ctx, workspaceID, after, []string{subject}, 50, func(e delivery.Event) bool {
		all = append(all, e)
		return true
	})
	return all, next, err
}

// readAllEvents reads pages from the first event on until one has no place to go on from. A page leads at most so many
// sequences further.
func readAllEvents(
	t *testing.T, s *Store, workspaceID uuid.UUID, subject string, most int64,
) (all []delivery.Event, pages int) {
	t.Helper()
	for after := int64(0); ; {
		page, next, err := readEvents(t.Context(), s, workspaceID, after, subject)
		must(t, err)
		all, pages = append(all, page...), pages+1
		if next == 0 {
			return all, pages
		}
		if next <= after || next > after+most {
			t.Fatalf("after %d, the next page begins after %d", after, next)
		}
		after = next
	}
}

// unnumbered counts the events of a workspace that have no sequence.
func unnumbered(w *postgrestest.Fixture, workspaceID uuid.UUID) int {
	return w.Count("select count(*) from account.events where tenant_id = $1 and sequence is null", workspaceID)
}

// Each read of events and each step of the worker numbers a bounded number of events. A session that is ended within a
// step loses that step alone.
func TestEventSteps_AreBoundedAndCommitted(t *testing.T) {
	t.Parallel()
	w, store, workspaceID := stepStore(t)
	const all = 400
	w.Exec(addEvents, workspaceID, "programme.created", all)
	if read, next, err := readEvents(t.Context(), store, workspaceID, 0, "programme"); err != nil || next != 40 ||
		len(read) != 40 || unnumbered(w, workspaceID) != all-40 {
		t.Fatalf("%d events were read, then %d, %d are left: %v", len(read), next, unnumbered(w, workspaceID), err)
	}
	if behind, err := store.WorkspacesBehind(t.Context(), 1000); err != nil || !slices.Contains(behind, workspaceID) {
		t.Errorf("behind: %v, %v", behind, err)
	}
	for left := all - 80; left > 0; left -= 120 {
		behind, err := store.NumberEvents(t.Context(), workspaceID)
		if err != nil || !behind || unnumbered(w, workspaceID) != left {
			t.Fatalf("behind %t, %d events are left, want %d: %v", behind, unnumbered(w, workspaceID), left, err)
		}
		endWithinStep(t, w, workspaceID)
		if n := unnumbered(w, workspaceID); n != left {
			t.Fatalf("%d events are left after a session was ended, want %d", n, left)
		}
		for range 2 {
			orFail(store.NumberEvents(t.Context(), workspaceID))(t)
		}
	}
	for orFail(store.NumberEvents(t.Context(), workspaceID))(t) {
	}
	w.Wants(all, `select count(distinct sequence) from account.events
		where tenant_id = $1 and sequence between 1 and $2`, workspaceID, all)
	if behind, err := store.WorkspacesBehind(t.Context(), 1000); err != nil || slices.Contains(behind, workspaceID) {
		t.Errorf("behind: %v, %v", behind, err)
	}
}

// endWithinStep ends a session that has done a step and not committed it.
func endWithinStep(t *testing.T, w *postgrestest.Fixture, workspaceID uuid.UUID) {
	t.Helper()
	session := postgrestest.Connect(t, w.Database.Resourceapi)
	orFail(session.Exec(t.Context(), "begin"))(t)
	orFail(session.Exec(t.Context(), "select account.number_events($1, 40)", workspaceID))(t)
	must(t, session.PgConn().Conn().Close())
}

// A reader that follows the sequences of a workspace reads each event once, in order, while transactions that began
// earlier end later, other readers read, and workers number.
func TestEventSteps_ReaderMissesNothingAmongWritersAndWorkers(t *testing.T) {
	t.Parallel()
	w, store, workspaceID := stepStore(t)
	w.Exec(addEvents, workspaceID, "programme.created", 500)
	const writers, transactions, each = 4, 15, 7
	writing, during := errgroup.WithContext(t.Context())
	for range writers {
		writing.Go(func() error { return writeSlowly(during, w, workspaceID, transactions, each) })
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var working errgroup.Group
	var ended atomic.Bool
	working.Go(func() error {
		defer ended.Store(true)
		return writing.Wait()
	})
	for range 2 {
		working.Go(func() error { // a worker
			for ctx.Err() == nil {
				if _, err := store.NumberEvents(t.Context(), workspaceID); err != nil {
					return err
				}
			}
			return nil
		})
		working.Go(func() error { // a reader that always begins again
			for ctx.Err() == nil {
				if _, _, err := readEvents(t.Context(), store, workspaceID, 0, "programme"); err != nil {
					return err
				}
			}
			return nil
		})
	}
	seen, after := 0, int64(0)
	for {
		wrote := ended.Load()
		page, next, err := readEvents(t.Context(), store, workspaceID, after, "programme")
		must(t, err)
		for _, e := range page {
			if e.Sequence != after+1 {
				t.Fatalf("sequence %d follows %d", e.Sequence, after)
			}
			seen, after = seen+1, e.Sequence
		}
		if wrote && next == 0 && len(page) == 0 && unnumbered(w, workspaceID) == 0 {
			break
		}
	}
	stop()
	must(t, working.Wait())
	if want := 500 + writers*transactions*each; seen != want {
		t.Errorf("%d events were read, want %d", seen, want)
	}
}

// writeSlowly adds events in transactions, some of which take long.
func writeSlowly(ctx context.Context, w *postgrestest.Fixture, workspaceID uuid.UUID, transactions, each int) error {
	session, err := pgx.Connect(ctx, w.Database.Resourceapi)
	if err != nil {
		return err
	}
	defer func() { _ = session.Close(context.WithoutCancel(ctx)) }()
	for range transactions {
		err := pgx.BeginFunc(ctx, session, func(tx pgx.Tx) error {
			for range each {
				if _, err := tx.Exec(ctx, addEvents, workspaceID, "programme.created", 1); err != nil {
					return err
				}
				time.Sleep(rand.N(5 * time.Millisecond))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// A reader that may read few of many events, or whose first events are older than 30 days, gets pages with a place to
// go on from. The last one has none.
func TestEventSteps_PageWithoutEventsLeadsToTheNext(t *testing.T) {
	t.Parallel()
	w, store, workspaceID := stepStore(t)
	w.Exec(addEvents, workspaceID, "programme.created", 450)
	w.Exec(`update account.events set created_at = now() - interval '30 days 1 second'
		where tenant_id = $1 and id % 3 = 0`, workspaceID)
	w.Exec(addEvents, workspaceID, "form.created", 3)
	for subject, want := range map[string]int{"form": 3, "submission": 0} {
		if found, pages := readAllEvents(t, store, workspaceID, subject, 100); len(found) != want || pages < 3 {
			t.Errorf("%s: %d events in %d pages, want %d", subject, len(found), pages, want)
		}
	}
}

// A reader gets an event that nothing has read behind many that the reader may not read, and each event once.
func TestEventSteps_NewEventsBehindOthersAreReadOnce(t *testing.T) {
	t.Parallel()
	w, store, workspaceID := stepStore(t)
	w.Exec(addEvents, workspaceID, "programme.created", 90)
	w.Exec("select account.number_events($1, 1000)", workspaceID)
	w.Exec(addEvents, workspaceID, "form.created", 1)
	if page, next, err := readEvents(t.Context(), store, workspaceID, 0, "form"); len(page) != 1 || next != 0 {
		t.Errorf("%d events, then %d: %v", len(page), next, err)
	}
	w.Exec(addEvents, workspaceID, "form.created", 120)
	all, _ := readAllEvents(t, store, workspaceID, "form", 211)
	for i, e := range all {
		if want := int64(91 + i); e.Sequence != want {
			t.Fatalf("event %d, want %d", e.Sequence, want)
		}
	}
	if len(all) != 121 {
		t.Errorf("%d events were read, want 121", len(all))
	}
}

// An endpoint that is added to a workspace with a backlog gets the events from then on, and not those before.
// Deliveries leave the backlog's sequences to the worker, which rests between its steps.
func TestEventSteps_NewEndpointGetsNoBacklog(t *testing.T) {
	t.Parallel()
	w, stepped, workspaceID := stepStore(t)
	store, user := stepped.Webhooks(), w.User()
	w.Member(workspaceID, user)
	w.Exec(addEvents, workspaceID, "programme.created", 800)
	w.Exec("update account.events set created_at = now() - interval '1 hour' where tenant_id = $1", workspaceID)
	id := uuid.New()
	w.Wants(1, `select count(account.add_webhook($1, $2, $3, 'https://hooks.example.org', '{programme.created}',
		'', '', 20))`, id, workspaceID, user)
	w.Exec(addEvents, workspaceID, "programme.created", 1)
	for range 200 {
		target := orFail(store.Target(t.Context(), workspaceID, id))(t)
		left := unnumbered(w, workspaceID)
		some, end, more, err := store.Next(t.Context(), target, target.Types)
		must(t, err)
		if n := unnumbered(w, workspaceID); n != left {
			t.Errorf("a delivery gave %d events their sequences", left-n)
		}
		if len(some) > 0 {
			last := int64(w.Count("select count(*) from account.events where tenant_id = $1", workspaceID))
			if len(some) > 1 || more || some[0].Sequence != last {
				t.Errorf("the first events are %+v", some)
			}
			return
		}
		if end == target.Position { // the worker has to go on first
			if claimed := claim(t, store, workspaceID); len(claimed) > 0 {
				t.Errorf("claimed without an event: %+v", claimed)
			}
			orFail(stepped.NumberEvents(t.Context(), workspaceID))(t)
			continue
		}
		if end < target.Position || end > target.Position+100 {
			t.Fatalf("from %d to %d", target.Position, end)
		}
		claimed := claim(t, store, workspaceID)
		if len(claimed) != 1 || claimed[0].ID != id {
			t.Fatalf("claimed %+v", claimed)
		}
		must(t, store.ReleaseWebhook(t.Context(), claimed[0]))
		must(t, store.Skip(t.Context(), target, end))
	}
	t.Error("the event was not found")
}

// claim claims endpoints of a workspace for a minute.
func claim(t *testing.T, store *Webhooks, workspaceID uuid.UUID) []delivery.Claim {
	t.Helper()
	all := orFail(store.ClaimWebhooks(t.Context(), []uuid.UUID{workspaceID}, time.Minute, 1000, 1000))(t)
	// Those of other tests have deliveries that a user requested.
	return slices.DeleteFunc(all, func(one delivery.Claim) bool { return one.WorkspaceID != workspaceID })
}

// No statement on events reads more for a backlog of one workspace than for a few events: neither with plans that were
// made before there were events, nor with new ones while Postgres has no statistics of them.
func TestEventStatements_ReadNoMoreForBacklog(t *testing.T) {
	testkit.SkipIfDistributed(t, "the plan shows tasks instead of blocks")
	t.Parallel()
	w := postgrestest.New(t)
	sessions := planSessions(t, w)
	user := w.User()
	prepare := func(events int) uuid.UUID {
		workspaceID := w.Workspace()
		w.Member(workspaceID, user)
		addEndpoint(w, workspaceID, user, "types = '{form.created}'")
		w.Exec(addEvents, workspaceID, "programme.created", events)
		w.Exec("select account.number_events($1, $2)", workspaceID, events/2)
		w.Exec("vacuum account.events") // the former versions of the rows are no backlog
		return workspaceID
	}
	first := prepare(3)
	for _, session := range sessions {
		for _, statement := range eventStatements {
			blocks(t, session, statement, first)
		}
	}
	few, many := prepare(2000), prepare(8000)
	for _, session := range sessions {
		for _, statement := range eventStatements {
			less, more := blocks(t, session, statement, few), blocks(t, session, statement, many)
			if more > less+less/2+20 {
				t.Errorf("%s: %d blocks for 8,000 events, %d for 2,000", statement, more, less)
			}
		}
	}
}

// A workspace with few events reads nothing of the backlog of another one, even if Postgres has statistics and plans
// from before that backlog, when no event or every event had a sequence.
func TestEventStatements_IdleWorkspaceReadsNoBacklog(t *testing.T) {
	testkit.SkipIfDistributed(t, "the plan shows tasks instead of blocks")
	t.Parallel()
	for _, numbered := range []bool{true, false} {
		w := postgrestest.New(t)
		idle, crowded := w.Workspace(), w.Workspace()
		for _, workspaceID := range []uuid.UUID{idle, crowded} {
			w.Exec(addEvents, workspaceID, "programme.created", 4)
			if numbered {
				w.Exec("select account.number_events($1, 1000)", workspaceID)
			}
		}
		w.Exec("analyze")
		sessions := planSessions(t, w)
		for _, session := range sessions {
			for _, statement := range eventStatements {
				blocks(t, session, statement, idle) // reads Postgres's catalogue
			}
		}
		w.Exec(addEvents, crowded, "programme.created", 10_000) // in about 200 blocks
		w.Exec("select account.number_events($1, 5000)", crowded)
		for _, session := range sessions {
			for _, statement := range eventStatements {
				n := math.MaxInt
				for range 3 { // when Postgres has analyzed the table, one call also reads its catalogue, to plan anew
					w.Exec(addEvents, idle, "programme.created", 1)
					n = min(n, blocks(t, session, statement, idle))
				}
				if n > 150 {
					t.Errorf("%s: %d blocks in a workspace without a backlog", statement, n)
				}
			}
		}
	}
}

// Events that have a sequence are not read again to find those that have none, even if Postgres has statistics from
// before, when none had one.
func TestEventStatements_ReadNoNumberedEvents(t *testing.T) {
	testkit.SkipIfDistributed(t, "the plan shows tasks instead of blocks")
	t.Parallel()
	w := postgrestest.New(t)
	workspaceID := w.Workspace()
	w.Exec(`insert into account.events (tenant_id, type, data)
		select $1, 'programme.created', '{}' from generate_series(1, 60000)`, workspaceID)
	w.Exec("analyze account.events")
	for _, most := range []int{50_000, 20_000} { // some are left, then none
		w.Exec("select account.number_events($1, $2)", workspaceID, most)
		w.Exec("vacuum account.events")
		for _, session := range planSessions(t, w) {
			for _, statement := range []string{
				"account.number_events('%s', 1)", "account.workspaces_unread(array['%s'::uuid])",
			} {
				blocks(t, session, statement, workspaceID) // reads Postgres's catalogue
				if n := blocks(t, session, statement, workspaceID); n > 200 {
					t.Errorf("%s: %d blocks after %d events got a sequence", statement, n, most)
				}
			}
		}
	}
}

// planSessions returns a session for each way in which Postgres plans prepared statements.
func planSessions(t *testing.T, w *postgrestest.Fixture) (sessions []*pgx.Conn) {
	t.Helper()
	for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
		session := postgrestest.Connect(t, w.Database.Owner)
		orFail(session.Exec(t.Context(), "set plan_cache_mode = "+mode))(t)
		sessions = append(sessions, session)
	}
	return sessions
}

// eventStatements are the statements on the events of a workspace.
var eventStatements = []string{
	"account.number_events('%s', 100)",
	"account.events_after('%s', 0, '{programme}', 51, 100, 100)",
	"account.events_after('%s', 0, '{form}', 51, 100, 100)",
	"account.webhook_events('%s', 0, now(), '{form.created}', 50, 100)",
	"account.workspaces_unread(array['%s'::uuid])",
	"account.claim_webhooks(array['%s'::uuid], '1 second', 10, 10)",
	"account.workspaces_behind(10) where tenant = '%s'",
}

// blocks returns the blocks that a statement of the workspace reads.
func blocks(t *testing.T, session *pgx.Conn, statement string, workspaceID uuid.UUID) int {
	t.Helper()
	var plan []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	err := session.QueryRow(t.Context(), "explain (analyze, buffers, format json) select * from "+
		fmt.Sprintf(statement, workspaceID)).Scan(&plan)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return plan[0].Plan.Hit + plan[0].Plan.Read
}
