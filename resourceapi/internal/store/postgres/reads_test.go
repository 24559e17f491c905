package postgres

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

// A batchCounter counts the batches sent to Postgres.
type batchCounter struct{ batches atomic.Int64 }

func (c *batchCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (c *batchCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (c *batchCounter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.batches.Add(1)
	return ctx
}
func (c *batchCounter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (c *batchCounter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// Each of many concurrent requests gets the standing of its own credential and the programmes of its own workspace.
func TestReads_EachRequestGetsItsOwnResult(t *testing.T) {
	t.Parallel()
	w := shared(t).For(t)
	counter := &batchCounter{}
	store := orFail(Open(t.Context(), w.URL(), Limits{Connections: 4, Wait: testkit.StoreWait}, counter))(t)
	t.Cleanup(store.Close)
	store.reads.AtOnce = 2 // independent of the machine
	const clients, times = 24, 12
	var all sync.WaitGroup
	for i := range clients {
		workspaceID, user, count := w.Workspace(), w.User(), 1+i%5
		w.Member(workspaceID, user, perm.ProgrammesRead)
		ids := w.Programmes(workspaceID, count)
		query := programme.Query{WorkspaceID: workspaceID, Limit: 2, Into: newList}
		question := standing.Query{
			PATHash:     credential.Hash(w.PAT(workspaceID, user, perm.ProgrammesRead).Reveal()),
			WorkspaceID: workspaceID,
			Module:      "programmes",
		}
		if i%2 == 0 {
			grant := w.Grant(standing.Connector, workspaceID, user, "https://api.example/mcp", perm.ProgrammesRead)
			question = standing.Query{
				GrantID:     grant.ID,
				GrantIn:     workspaceID,
				KeyID:       postgrestest.KeyID,
				WorkspaceID: workspaceID,
			}
		}
		all.Go(func() {
			own := func(what string, s standing.Standing, err error) {
				if err != nil || s.UserID != user || !s.Member || s.CredentialWorkspace != workspaceID ||
					s.ModuleEnabled != (question.Module != "") {
					t.Errorf("%s: %+v %v", what, s, err)
				}
			}
			for range times {
				s, page, err := store.StandingAndPage(t.Context(), question, query)
				own("a page", s, err)
				foreign := func(p programme.Programme) bool { return !slices.Contains(ids, p.ID) }
				if all := listed(page); len(all) != min(count, 2) || page.More != (count > 2) ||
					slices.ContainsFunc(all, foreign) {
					t.Errorf("of %v: %+v", ids, page)
				}
				s, found, err := store.StandingAndProgramme(t.Context(), question, workspaceID, ids[0])
				if own("a programme", s, err); found == nil || found.ID != ids[0] {
					t.Errorf("got %+v, want %s", found, ids[0])
				}
				_, found, err = store.StandingAndProgramme(t.Context(), question, workspaceID, uuid.New())
				if found != nil || err != nil {
					t.Errorf("got %+v %v, want no programme", found, err)
				}
				s, err = store.Standing(t.Context(), question)
				own("a standing", s, err)
				_, page, err = store.StandingAndPage(t.Context(), standing.Query{GrantID: uuid.New()}, query)
				if !errors.Is(err, standing.ErrUnknown) || page.Sink != nil {
					t.Errorf("unknown credential: %+v %v", page, err)
				}
			}
		})
	}
	all.Wait()
	// How many share a batch depends on the machine.
	if sent, asked := counter.batches.Load(), int64(clients*times*5); sent >= asked {
		t.Errorf("%d batches for %d requests", sent, asked)
	}
}

// A query that fails or blocks in a batch affects only its own request.
func TestReads_FailureOfOneDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	w, store := newStore(t)
	store.reads.AtOnce = 0 // no query starts at once, so that each is batched
	var answering atomic.Pointer[func(context.Context, []readQuery) ([]readResult, error)]
	store.reads.Answer = func(ctx context.Context, all []readQuery) ([]readResult, error) {
		return (*answering.Load())(ctx, all)
	}
	workspaceID, user := w.Workspace(), w.User()
	w.Member(workspaceID, user, perm.ProgrammesRead)
	w.Programmes(workspaceID, 1)
	question := standing.Query{PATHash: credential.Hash(w.PAT(workspaceID, user, perm.ProgrammesRead).Reveal())}
	bad := func(text string, read func(pgx.Rows) (any, error)) readQuery {
		return readQuery{standing: question, text: text, read: read}
	}
	closing := func(rows pgx.Rows) (any, error) {
		rows.Close()
		return nil, rows.Err()
	}
	for name, c := range map[string]struct {
		company  readQuery
		harmless bool
	}{
		"fails":  {company: bad("select 1/0", closing)},
		"hangs":  {company: bad("select pg_sleep(30)", closing)},
		"panics": {company: bad("select 1", func(pgx.Rows) (any, error) { panic("mine") })},
		"alone":  {harmless: true, company: readQuery{standing: question}},
	} {
		t.Run(name, func(t *testing.T) {
			answer := store.sendReads
			var met atomic.Bool
			together := func(ctx context.Context, all []readQuery) ([]readResult, error) {
				if met.Swap(true) {
					return answer(ctx, all)
				}
				answers, err := answer(ctx, append(slices.Clone(all), c.company))
				if err != nil {
					return nil, err
				}
				return answers[:len(all)], nil
			}
			answering.Store(&together)
			query := programme.Query{WorkspaceID: workspaceID, Limit: 5, Into: newList}
			s, page, err := store.StandingAndPage(t.Context(), question, query)
			if err != nil || s.UserID != user || len(listed(page)) != 1 || !met.Load() {
				t.Errorf("in a batch with one that %s: %+v %+v %v", name, s, page, err)
			}
			await.True(t, "the pool releases the cancelled connection", func() bool {
				return store.PoolStat().AcquiredConns() == 0
			})
			if c.harmless {
				return
			}
			defer func() { _ = recover() }() // a panic in its own read reaches its own caller
			if s, _, err := store.read(t.Context(), c.company); err == nil || s.UserID != uuid.Nil {
				t.Errorf("the one that %s: %+v %v", name, s, err)
			}
		})
	}
}
