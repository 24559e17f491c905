package postgres_test

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// many opens and activates n grants of n clients.
func (l *storeTest) many(n int) []grant.Grant {
	l.Helper()
	all := make([]grant.Grant, n)
	for i := range all {
		app := l.fixture.Connector(l.grant.Resource, perm.ProgrammesRead)
		g := l.grant
		g.ID, g.ClientID = uuid.New(), app.ID
		wants(l, grant.Pending)(l.approve(l.Context(), g))
		wants(l, grant.Updated)(l.activate(l.Context(), g.ID, 11))
		all[i] = g
	}
	return all
}

// lock executes a statement that takes locks, which the transaction has until the test ends it, or ends.
func (l *storeTest) lock(sql string, args ...any) pgx.Tx {
	l.Helper()
	tx, err := l.fixture.Owner.Begin(l.Context())
	must(l, err)
	l.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(l.Context())) })
	must(l, errOf(tx.Exec(l.Context(), sql, args...)))
	return tx
}

// hold locks the row of a grant until release is called.
func (l *storeTest) hold(id uuid.UUID) (release func()) {
	l.Helper()
	tx := l.lock(`select from account.grants where tenant_id = $2 and id = $1 for update`, id, l.fixture.WorkspaceID)
	return func() {
		l.Helper()
		must(l, tx.Rollback(l.Context()))
	}
}

// concurrently calls work for each number at the same time.
func concurrently(n int, work func(int)) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		all.Go(func() { <-start; work(i) })
	}
	close(start)
	all.Wait()
}

func TestSnapshot_ConcurrentCallsReturnOwnGrantAndClient(t *testing.T) {
	l := newStoreTest(t)
	grants := l.many(24)
	concurrently(len(grants)*4, func(i int) {
		own := grants[i%len(grants)]
		for round := range 20 {
			id := own.ID
			if round%4 == 3 {
				id = uuid.Nil
			}
			snapshot, err := l.Snapshot(t.Context(), own.ClientID, l.key(id))
			if err != nil || snapshot.Client.ID != own.ClientID || (snapshot.Grant == nil) != (id == uuid.Nil) ||
				(snapshot.Grant != nil && snapshot.Grant.ID != own.ID) {
				t.Errorf("queried %s, got %+v %v", own.ID, snapshot, err)
			}
		}
	})
}

func TestIntrospection_ConcurrentCallsReturnOwnResult(t *testing.T) {
	l := newStoreTest(t)
	grants := l.many(12)
	tokens, owners := make([][]byte, len(grants)), make([]uuid.UUID, len(grants))
	for i := range tokens {
		owners[i] = l.fixture.Member(perm.ProgrammesRead)
		tokens[i] = credential.Hash(l.fixture.Token(owners[i], perm.ProgrammesRead).Reveal())
	}
	l.publish("signing")
	concurrently(len(grants)*4, func(i int) {
		own, token, owner := grants[i%len(grants)], tokens[i%len(grants)], owners[i%len(grants)]
		for round := range 20 {
			q := standing.Query{GrantID: own.ID, GrantIn: own.WorkspaceID, KeyID: "signing"}
			switch round % 4 {
			case 1:
				q = standing.Query{PATHash: token}
			case 2:
				q.GrantID = uuid.New()
			}
			caller, known, issued, err := l.Introspection(t.Context(), own.ClientID, nil, q)
			right := err == nil && caller != nil && caller.ID == own.ClientID
			switch {
			case q.PATHash != nil:
				right = right && known != nil && known.UserID == owner && !issued.IsZero()
			case q.GrantID == own.ID:
				right = right && known != nil && known.CredentialID == own.ID && known.State == standing.Active &&
					issued.IsZero()
			default:
				right = right && known == nil && issued.IsZero()
			}
			if !right {
				t.Errorf("%s queried %+v, got %+v %+v %s %v", own.ClientID, q, caller, known, issued, err)
			}
		}
	})
	q := standing.Query{GrantID: grants[0].ID, GrantIn: grants[0].WorkspaceID}
	caller, known, _, err := l.Introspection(t.Context(), uuid.New(), nil, q)
	if err != nil || caller != nil || known == nil {
		t.Errorf("unknown caller: %+v %+v %v", caller, known, err)
	}
}

// advanceTogether advances all grants to a generation at the same time, each with a token of its own. Meanwhile it
// checks that other steps are refused.
func (l *storeTest) advanceTogether(grants []grant.Grant, last uint32) {
	l.Helper()
	ctx := l.Context()
	concurrently(len(grants), func(i int) {
		own, id := byte(100+i), grants[i].ID
		for generation := uint32(2); generation <= last; generation++ {
			wants(l, grant.Updated)(l.advance(ctx, id, generation, hash(own)))
			if generation%5 == 0 {
				wants(l, grant.Refused)(l.advance(ctx, id, generation, hash(own+100)))
				wants(l, grant.Refused)(l.advance(ctx, id, generation-1, hash(own)))
				wants(l, grant.Refused)(l.activate(ctx, id, own))
				wants(l, grant.Refused)(l.advance(ctx, uuid.New(), generation, hash(own)))
			}
		}
	})
	for i, g := range grants {
		stored := l.stored(g)
		if stored.Generation != last || !bytes.Equal(stored.RefreshHash, hash(byte(100+i))) {
			l.Errorf("grant %d: %+v, want generation %d", i, stored, last)
		}
	}
}

func TestAdvance_ConcurrentGrantsAdvanceIndependently(t *testing.T) {
	l := newStoreTest(t)
	l.advanceTogether(l.many(24), 40)
}

// Two processes, or a retry that overtakes, may write two steps of one grant at once: the later generation
// wins.
func TestAdvance_LaterOfTwoConcurrentStepsWins(t *testing.T) {
	l := newStoreTest(t)
	one := l.many(1)[0]
	for generation := uint32(2); generation < 200; generation += 4 {
		results := make([]grant.UpdateResult, 4)
		concurrently(len(results), func(i int) {
			var err error
			if results[i], err = l.advance(t.Context(), one.ID, generation+uint32(i), hash(byte(i))); err != nil {
				t.Error(err)
			}
		})
		stored := l.stored(one)
		if results[3] != grant.Updated || stored.Generation != generation+3 ||
			!bytes.Equal(stored.RefreshHash, hash(3)) {
			t.Errorf("%v, stored generation %d, want %d", results, stored.Generation, generation+3)
		}
	}
}

// wantUndone checks that a step failed and was certainly not written, so that the rotation can be undone (G8).
func wantUndone(t testing.TB, what string, err error) {
	t.Helper()
	wantErr(t, what, store.ErrUnavailable, err)
	wantErr(t, what, grant.ErrNotCommitted, err)
}

func TestG8_LockTimeoutIsNotCommittedAndDelaysNoOtherGrant(t *testing.T) {
	l := newStoreTest(t)
	grants := l.many(12)
	held := grants[0]
	hasty, release := l.hasty(), l.hold(held.ID)
	concurrently(len(grants), func(i int) {
		if i == 0 {
			wantUndone(t, "locked grant", errOf(hasty.advance(t.Context(), held.ID, 2, hash(2))))
			return
		}
		for generation := uint32(2); generation < 40; generation++ {
			wants(l, grant.Updated)(l.advance(t.Context(), grants[i].ID, generation, hash(2)))
		}
	})
	release()
	wants(l, grant.Updated)(l.advance(t.Context(), held.ID, 2, hash(2)))
}

// A statement that was never sent is certainly not committed, so the rotation can be undone (G8). This holds
// if no connection became free, and if the remaining time would end during the statement.
func TestG8_UnsentStepIsNotCommitted(t *testing.T) {
	l := newStoreTest(t)
	one := l.many(1)[0]
	hasty := l.hasty()
	release, err := hasty.TakeAll(t.Context())
	must(t, err)
	concurrently(4, func(int) {
		wantUndone(t, "without a connection", errOf(hasty.advance(t.Context(), one.ID, 2, hash(2))))
	})
	release()
	release = l.hold(one.ID)
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // less than Postgres waits for a lock
	defer cancel()
	wantUndone(t, "with little time left", errOf(l.advance(soon, one.ID, 2, hash(2))))
	release()
	wants(l, grant.Updated)(l.advance(t.Context(), one.ID, 2, hash(2)))
}

// A distributed Postgres refuses a statement that locks grants of several workspaces. Each step then has its own
// statement.
func TestAdvance_RefusedBatchIsTakenOneByOne(t *testing.T) {
	testkit.SkipIfDistributed(t, "Citus refuses the triggers of this test")
	l := ownStoreTest(t)
	grants := l.many(24)
	l.fixture.Exec(`create table account.refusals (at timestamptz); grant insert on account.refusals to public`)
	l.fixture.Exec(`create table public.pg_dist_partition ()`) // of Citus
	l.fixture.Exec(`create function account.refuse_many() returns trigger language plpgsql as $$
		begin
			if (select count(*) from changed) > 1 then
				raise exception 'could not run distributed query' using errcode = '0A000';
			end if;
			insert into account.refusals values (now());
			return null;
		end $$`)
	l.fixture.Exec(`create trigger refuse_many after update on account.grants referencing new table as changed
		for each statement execute function account.refuse_many()`)
	l.advanceTogether(grants, 10)
}

// Violations are also recognised in a distributed Postgres, where the names of shards end with numbers.
func TestViolations_AreRecognisedInShards(t *testing.T) {
	testkit.SkipIfDistributed(t, "Citus refuses the view of this test, and other tests violate constraints of shards")
	l := ownStoreTest(t)
	user := l.fixture.Member(perm.ProgrammesRead)
	l.fixture.Exec(`alter table account.memberships rename to memberships_102008`)
	l.fixture.Exec(`create view account.memberships as select * from account.memberships_102008`)
	l.fixture.Exec(`grant all on account.memberships to almoner_authserver`)
	l.fixture.Exec(`alter table account.memberships_102008
		rename constraint memberships_pkey to memberships_pkey_102008`)
	event, held := byOperator(audit.MemberAdded, user), perm.NewSet(perm.ProgrammesRead)
	wantErr(t, "add a member", membership.ErrMember,
		l.AddMember(t.Context(), l.fixture.WorkspaceID, user, held, event))
}
