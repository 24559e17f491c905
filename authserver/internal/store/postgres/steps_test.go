package postgres_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// eachWay runs a test with batches of steps, and with single steps, as a distributed Postgres takes them.
func eachWay(t *testing.T, create func(*testing.T) *storeTest, test func(*testing.T, *storeTest)) {
	t.Helper()
	for way, prepare := range map[string]func(*storeTest){
		"in batches": func(*storeTest) {},
		"alone":      func(l *storeTest) { l.SetDistributed() },
	} {
		t.Run(way, func(t *testing.T) {
			l := create(t)
			prepare(l)
			test(t, l)
		})
	}
}

func (l *storeTest) cancel(step grant.Step) {
	l.Helper()
	if err := l.CancelTries(l.Context(), step, []string{step.Nonce}); err != nil {
		l.Error(err)
	}
}

func (l *storeTest) wantStored(state grant.State, generation uint32, hash []byte) grant.Grant {
	l.Helper()
	g, err := l.Grant(l.Context(), l.grant.Key())
	if err != nil || g.State != state || g.Generation != generation || !bytes.Equal(g.RefreshHash, hash) {
		l.Errorf("%s, generation %d, hash %x, %v", g.State, g.Generation, g.RefreshHash, err)
	}
	return g
}

// refresh returns the step to generation 2, whose token replaces the former one.
func (l *storeTest) refresh(nonce string, token, former []byte) grant.Step {
	step := l.step(nonce, 2, token)
	step.Former = former
	return step
}

func TestG10_GivenUpStepIsRevertedOrRefused(t *testing.T) {
	eachWay(t, newStoreTest, func(t *testing.T, l *storeTest) {
		l.pending()
		ctx := t.Context()
		binding := l.grant.CodeBinding
		exchange := func(nonce string, b byte) grant.Step { return l.step(nonce, 1, hash(b)) }
		l.cancel(exchange("not taken", 10))
		wants(l, grant.Refused)(l.Activate(ctx, exchange("not taken", 10), binding))
		wants(l, grant.Updated)(l.Activate(ctx, exchange("taken", 11), binding))
		l.cancel(exchange("taken", 11))
		l.wantStored(grant.Pending, 0, nil)
		wants(l, grant.Refused)(l.Activate(ctx, exchange("taken", 11), binding))
		wants(l, grant.Updated)(l.Activate(ctx, exchange("retry", 12), binding))

		refresh := func(nonce string, b byte) grant.Step { return l.refresh(nonce, hash(b), hash(12)) }
		l.cancel(refresh("not taken 2", 20))
		wants(l, grant.Refused)(l.Advance(ctx, refresh("not taken 2", 20)))
		wants(l, grant.Updated)(l.Advance(ctx, refresh("taken 2", 21)))
		l.cancel(refresh("taken 2", 21))
		l.wantStored(grant.Active, 1, hash(12))
		wants(l, grant.Updated)(l.Advance(ctx, refresh("retry 2", 22)))
		l.cancel(refresh("taken 2", 21)) // repeated: another step was taken since
		l.wantStored(grant.Active, 2, hash(22))
	})
}

// Postgres stores the last eight nonces in the order in which they were given up, and does not change a revoked grant.
// A try is given up again until Postgres has answered, which must not push out the nonces of other tries.
func TestG10_GivenUpNoncesAreBounded(t *testing.T) {
	eachWay(t, newStoreTest, func(t *testing.T, l *storeTest) {
		l.pending()
		wants(l, grant.Updated)(l.activate(t.Context(), l.grant.ID, 11))
		if g := l.wantStored(grant.Active, 1, hash(11)); g.GivenUp != nil {
			t.Errorf("%q", g.GivenUp)
		}
		step := l.refresh("", hash(20), hash(11))
		for i := range 10 {
			step.Nonce = fmt.Sprint(i)
			for range 9 {
				l.cancel(step)
			}
		}
		if g := l.wantStored(grant.Active, 1, hash(11)); fmt.Sprint(g.GivenUp) != "[2 3 4 5 6 7 8 9]" {
			t.Errorf("%q", g.GivenUp)
		}
		must(t, l.Revoke(t.Context(), l.grant.Key(), grant.ByUser, "user", nil))
		step.Generation, step.Hash = 1, hash(11)
		l.cancel(step)
		l.wantStored(grant.Revoked, 1, hash(11))
	})
}

// Tries that repeat a step share it. It is reverted when all of them were given up, and never if there were too many.
func TestG10_RepeatedStepIsRevertedByItsLastTry(t *testing.T) {
	eachWay(t, newStoreTest, func(t *testing.T, l *storeTest) {
		l.pending()
		ctx := t.Context()
		binding := l.grant.CodeBinding
		exchange := func(nonce string) grant.Step { return l.step(nonce, 1, hash(11)) }
		for _, nonce := range []string{"a", "b"} {
			wants(l, grant.Updated)(l.Activate(ctx, exchange(nonce), binding))
			wants(l, grant.Updated)(l.Activate(ctx, exchange(nonce), binding))
		}
		l.cancel(exchange("b"))
		wants(l, grant.Refused)(l.Activate(ctx, exchange("b"), binding))
		if g := l.wantStored(grant.Active, 1, hash(11)); fmt.Sprint(g.TakenBy) != "[a]" {
			t.Errorf("taken by %q", g.TakenBy)
		}
		l.cancel(exchange("a"))
		l.wantStored(grant.Pending, 0, nil)
		wants(l, grant.Updated)(l.Activate(ctx, exchange("c"), binding))

		refresh := func(nonce string) grant.Step { return l.refresh(nonce, hash(12), hash(11)) }
		for _, nonce := range []string{"d", "e"} {
			wants(l, grant.Updated)(l.Advance(ctx, refresh(nonce)))
		}
		must(t, l.CancelTries(ctx, refresh(""), []string{"d", "e"}))
		l.wantStored(grant.Active, 1, hash(11))
		for _, nonce := range []string{"f", "g", "h", "i"} {
			wants(l, grant.Updated)(l.Advance(ctx, refresh(nonce)))
		}
		for _, nonce := range []string{"f", "g", "h", "i"} {
			l.cancel(refresh(nonce))
		}
		if g := l.wantStored(grant.Active, 2, hash(12)); fmt.Sprint(g.TakenBy) != "["+grant.ManyTries+"]" {
			t.Errorf("taken by %q", g.TakenBy)
		}
	})
}

// A refresh changes no indexed column, so that the indexes do not grow and old row versions are pruned with
// their page. All versions of this test fit into one page, because another transaction may prevent pruning.
func TestAdvance_IsHeapOnlyUpdate(t *testing.T) {
	eachWay(t, ownStoreTest, func(t *testing.T, l *storeTest) {
		l.pending()
		wants(l, grant.Updated)(l.activate(t.Context(), l.grant.ID, 1))
		const advances = 5
		for generation := range uint32(advances) {
			wants(l, grant.Updated)(l.advance(t.Context(), l.grant.ID, generation+2, hash(byte(generation))))
		}
		l.Close() // a session that ends reports its statistics
		updates, heapOnly := 0, 0
		for updates < 1+advances {
			must(t, l.fixture.Owner.QueryRow(t.Context(), `select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables
				where relid = 'account.grants'::regclass`).Scan(&updates, &heapOnly))
		}
		if heapOnly < advances {
			t.Errorf("%d of %d updates are heap-only, want %d", heapOnly, updates, advances)
		}
		indexed := l.texts(`select distinct a.attname::text
			from pg_index i join pg_attribute a on a.attrelid = i.indrelid
			and a.attnum = any (i.indkey::int2[])
			where i.indrelid = 'account.grants'::regclass
			and a.attname in ('generation', 'refresh_hash', 'last_used_at', 'renewed_at')`)
		if len(indexed) > 0 {
			t.Errorf("columns that every refresh changes are indexed: %v", indexed)
		}
	})
}

// confirmations counts the statements that make a commit wait for a synchronous standby.
type confirmations struct{ n atomic.Int32 }

func (c *confirmations) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(q.SQL, "pg_logical_emit_message") {
		c.n.Add(1)
	}
	return ctx
}

func (*confirmations) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A repeated revocation waits for the standby, also if the deployment sends mail: an earlier one may have given up.
func TestG9_RepeatedRevocationOfReplayIsConfirmed(t *testing.T) {
	l := newStoreTest(t).pending()
	var confirmed confirmations
	url := credential.Secret(l.fixture.Database.Authserver)
	s, err := postgres.Open(t.Context(), postgres.Only(url), testkit.StoreWait, &confirmed)
	must(t, err)
	t.Cleanup(s.Close)
	keys := seal.NewKeys(make([]byte, 32))
	queue, err := mail.NewQueue[pgx.Tx](s.JobDriver(), postgres.MailSchema, keys, time.Now)
	must(t, err)
	must(t, l.Revoke(t.Context(), l.grant.Key(), grant.Replayed, "system", nil))
	for want, mails := range []postgres.MailQueue{nil, queue} {
		s.SendMail(mails)
		must(t, s.Revoke(t.Context(), l.grant.Key(), grant.Replayed, "system", nil))
		if n := int(confirmed.n.Load()); n != want+1 {
			t.Errorf("%d confirmations after %d repeated revocations", n, want+1)
		}
	}
}

// After a migration, Postgres refuses a statement that was prepared before with the code of one that a distributed
// Postgres does not accept.
func TestSteps_MigrationIsNoDistribution(t *testing.T) {
	testkit.SkipIfDistributed(t, "it is distributed")
	l := ownStoreTest(t).pending()
	wants(l, grant.Updated)(l.activate(t.Context(), l.grant.ID, 1))
	for generation := range uint32(4) {
		wants(l, grant.Updated)(l.advance(t.Context(), l.grant.ID, generation+2, hash(byte(generation))))
		kind := []string{"varchar(200)", "text"}[generation%2]
		l.fixture.Exec("alter table account.grants alter column revoke_reason type " + kind)
	}
	if l.Distributed() {
		t.Error("a migration was taken for a distributed Postgres")
	}
}
