package grant_test

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// A stepFunc takes a step in Postgres.
type stepFunc func(grant.Step) (grant.UpdateResult, error)

// An aroundStore runs around instead of each step in Postgres.
type aroundStore struct {
	grant.GrantStore
	around func(ctx context.Context, step grant.Step, take stepFunc) (grant.UpdateResult, error)
}

// aroundOf returns a store that runs take instead of each step of another one.
func aroundOf(
	grants grant.GrantStore, take func(grant.Step, stepFunc) (grant.UpdateResult, error),
) *aroundStore {
	return &aroundStore{grants, func(_ context.Context, step grant.Step, next stepFunc) (grant.UpdateResult, error) {
		return take(step, next)
	}}
}

func (s *aroundStore) Advance(ctx context.Context, step grant.Step) (grant.UpdateResult, error) {
	return s.around(ctx, step, func(step grant.Step) (grant.UpdateResult, error) {
		return s.GrantStore.Advance(ctx, step)
	})
}

func (s *aroundStore) AdvanceDirectly(
	ctx context.Context, step grant.Step, terms grant.CodeTerms, scope perm.Set,
) (snapshot grant.Snapshot, result grant.UpdateResult, err error) {
	result, err = s.around(ctx, step, func(step grant.Step) (result grant.UpdateResult, err error) {
		snapshot, result, err = s.GrantStore.AdvanceDirectly(ctx, step, terms, scope)
		return result, err
	})
	if err == nil && result != grant.Refused && snapshot.Grant == nil { // around took no step
		snapshot, err = s.Snapshot(ctx, terms.ClientID, step.Key(), nil)
	}
	return snapshot, result, err
}

// over returns a testEnv whose Service is over another store. The Service of b is not changed.
func (b *testEnv) over(store grant.GrantStore) *testEnv {
	other := *b
	other.grants = b.service(store)
	return &other
}

// around returns a testEnv whose Service runs take instead of each step in Postgres.
func (b *testEnv) around(take func(grant.Step, stepFunc) (grant.UpdateResult, error)) *testEnv {
	return b.over(aroundOf(b.store, take))
}

// awaitUndone waits until the Service has undone its steps about the grant.
func (b *testEnv) awaitUndone(g grant.Grant) {
	b.Helper()
	eventually(b.T, "a snapshot", func() error {
		_, err := b.grants.Snapshot(b.Context(), b.app.ID, g.Key(), nil)
		return err
	})
}

// keyOf returns the key of a grant in Redis.
func keyOf(g grant.Grant) string { return "g:{" + g.ID.String() + "}" }

// setField sets a field of the grant in Redis.
func (b *testEnv) setField(g grant.Grant, name string, value any) {
	b.Helper()
	testkit.Must(b, b.rdb.HSet(b.Context(), keyOf(g), name, value).Err())
}

// fields returns what Redis holds of the grant.
func (b *testEnv) fields(g grant.Grant) map[string]string {
	b.Helper()
	fields, err := b.rdb.HGetAll(b.Context(), keyOf(g)).Result()
	testkit.Must(b, err)
	return fields
}

// saved returns a function that restores what Redis holds of the grant now.
func (b *testEnv) saved(g grant.Grant) (restore func()) {
	b.Helper()
	older, err := b.rdb.Dump(b.Context(), keyOf(g)).Result()
	testkit.Must(b, err)
	return func() {
		b.Helper()
		testkit.Must(b, b.rdb.RestoreReplace(b.Context(), keyOf(g), 0, older).Err())
	}
}

// lock locks the row of the grant until the returned function is called.
func (b *testEnv) lock(g grant.Grant) (unlock func()) {
	b.Helper()
	lock, err := b.fixture.Owner.Begin(b.Context())
	testkit.Must(b, err)
	_, err = lock.Exec(b.Context(), `select from account.grants where id = $1 for update`, g.ID)
	testkit.Must(b, err)
	return func() { testkit.Must(b, lock.Rollback(b.Context())) }
}

// short is how long a Service waits for what the test keeps from it.
const short = 50 * time.Millisecond

// sentWithin is how long a Service waits for a response that the test drops. The call must be sent within this time.
const sentWithin = time.Second

// failUpdates makes every update of a grant in Postgres fail until allowUpdates.
func (b *testEnv) failUpdates() {
	b.Helper()
	b.fixture.Exec(`create function account.no() returns trigger language plpgsql
		as $$ begin raise 'disk full'; end $$`)
	b.fixture.Exec(`create trigger no before update on account.grants for each row execute function account.no()`)
}

func (b *testEnv) allowUpdates() {
	b.Helper()
	b.fixture.Exec(`drop trigger no on account.grants`)
}

// dropReplies is a go-redis hook that drops the responses of commands while it is on, or of the next one, after Redis
// has run them.
type dropReplies struct {
	goredis.Hook
	on, next atomic.Bool
}

func (s *dropReplies) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (s *dropReplies) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (s *dropReplies) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, command goredis.Cmder) error {
		err := next(ctx, command)
		if err == nil && (s.on.Load() || s.next.CompareAndSwap(true, false)) {
			command.SetErr(io.EOF)
			return io.EOF
		}
		return err
	}
}
