package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/batch"
)

// A step takes a grant to a generation.
type updateStep struct {
	id            uuid.UUID
	generation    int32
	hash, binding []byte
	nonce         string // of the try; one that was given up is not taken (grants.md, G10)
}

// The steps asked for whose grants are there, with their rows locked. The arrays are in subqueries for the reason of
// manyFactsSQL.
const (
	stepSQL = `(select $1::uuid id, $2::int generation, $3::bytea hash, $4::bytea binding, $5::text nonce, 1 place)
  asked`
	stepsSQL = `unnest((select $1::uuid[]), (select $2::int[]), (select $3::bytea[]), (select $4::bytea[]), (select $5::text[]))
  with ordinality asked (id, generation, hash, binding, nonce, place)`
	lockedSQL = `with step as (select asked.* from %s join account.grants g using (id) for no key update of g %s)`
)

// Activations commit durably: the use of a code must outlive a crash (G1). A pending grant holds what the approval of
// one code gave, and is activated by that code alone (G12).
const activateSQL = lockedSQL + `
update account.grants g set state = 'active', generation = step.generation, refresh_hash = step.hash, code_binding = step.binding,
  last_used_at = now()
from step
where g.id = step.id and not coalesce(step.nonce = any (g.given_up), false)
  and ((g.state = 'pending' and g.code_binding = step.binding)
    or (g.state = 'active' and g.generation = step.generation and g.refresh_hash = step.hash))
returning step.place`

// Advances do not wait for the disk: Redis holds the newer truth, and only if both lose it in the same fraction of a
// second is a superseded token the current one again. The setting is the transaction's own, and the transaction is this
// statement, so it costs no trip; with commits that matter it has nothing to do.
const advanceSQL = lockedSQL + `, hasty as materialized (select set_config('synchronous_commit', 'off', true))
update account.grants g set generation = step.generation, refresh_hash = step.hash, last_used_at = now()
from hasty, step
where g.id = step.id and g.state = 'active' and not coalesce(step.nonce = any (g.given_up), false)
  and (g.generation < step.generation or (g.generation = step.generation and g.refresh_hash = step.hash))
returning step.place`

// stepBatcher are those of one kind. Whose grants nobody else is changing go together, in one transaction. Those that
// were not taken so go alone: for them to wait until the grant is free, or to learn why.
type stepBatcher struct {
	store           *Store
	op              string
	many, one, wait string // one waits for nobody either
	batches         batch.Batcher[updateStep, bool]
}

func newStepBatcher(store *Store, op, sql string) *stepBatcher {
	s := &stepBatcher{store: store, op: op}
	s.many, s.one = fmt.Sprintf(sql, stepsSQL, "skip locked"), fmt.Sprintf(sql, stepSQL, "skip locked")
	s.wait = fmt.Sprintf(sql, stepSQL, "")
	s.batches = batch.Batcher[updateStep, bool]{
		Answer: s.updateBatch,
		Most:   maxBatch,
		AtOnce: 1,
		Within: acquireTimeout,
		Stay:   true,
	}
	return s
}

// Activate moves a pending grant to generation 1.
func (s *Store) Activate(ctx context.Context, one grant.Step, binding []byte) (grant.UpdateResult, error) {
	return s.activations.update(ctx, updateStep{one.GrantID, int32(one.Generation), one.Hash, binding, one.Nonce}, 0)
}

// Advance moves an active grant on to a generation.
func (s *Store) Advance(ctx context.Context, one grant.Step) (grant.UpdateResult, error) {
	return s.advances.update(
		ctx,
		updateStep{one.GrantID, int32(one.Generation), one.Hash, nil, one.Nonce},
		int32(one.Generation)-1,
	)
}

// giveUpSQL remembers the nonces of the last eight tries that were given up: as many as can be on their way at once.
const giveUpSQL = `
with g as (
  select id, coalesce(generation = $3 and refresh_hash = $4, false) taken, given_up || $2::text given_up
  from account.grants
  where id = $1 and state <> 'revoked'
  for no key update
)
update account.grants set
  given_up = g.given_up[greatest(cardinality(g.given_up) - 7, 1):],
  state = case when g.taken and $3 = 1 then 'pending' else state end,
  generation = case when g.taken then $3 - 1 else generation end,
  refresh_hash = case when g.taken then $5 else refresh_hash end
from g
where grants.id = g.id`

// GiveUp reverts a step if it was taken, and keeps it from being taken later.
func (s *Store) GiveUp(ctx context.Context, one grant.Step) error {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	_, err := s.pool.Exec(ctx, giveUpSQL, one.GrantID, one.Nonce, int32(one.Generation), one.Hash, one.Former)
	return unavailable("give up a step", err)
}

// update takes one step, which is to leave the generation before.
func (s *stepBatcher) update(ctx context.Context, one updateStep, before int32) (grant.UpdateResult, error) {
	waiting, stop := context.WithTimeout(ctx, acquireTimeout)
	defer stop()
	passed, err := s.batches.Do(waiting, one)
	if err != nil {
		return grant.Refused, uncommitted(s.op, err)
	}
	if passed {
		return grant.Updated, nil
	}
	return s.updateOne(ctx, one, before)
}

// updateBatch says which of the steps were taken. Nothing that somebody else locks holds them up.
func (s *stepBatcher) updateBatch(ctx context.Context, all []updateStep) ([]bool, error) {
	connection, err := s.store.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", batch.ErrUnasked, err)
	}
	defer connection.Release()
	ctx, cancel := context.WithTimeout(
		context.WithoutCancel(ctx),
		acquireTimeout,
	) // of its own, however long the connection took
	defer cancel()
	passed := make([]bool, len(all))
	if len(all) == 1 {
		passed[0], err = run(ctx, connection.Conn(), s.one, all[0])
		return passed, err
	}
	places, err := runMany(ctx, connection.Conn(), s.many, all)
	if err != nil {
		return nil, err
	}
	for _, place := range places {
		passed[place-1] = true
	}
	return passed, nil
}

// updateOne takes a step once nobody else changes its grant. Where it cannot be taken, it reads why.
func (s *stepBatcher) updateOne(ctx context.Context, one updateStep, before int32) (grant.UpdateResult, error) {
	waiting, stop := context.WithTimeout(ctx, acquireTimeout)
	defer stop()
	connection, err := s.store.pool.Acquire(waiting)
	if err != nil {
		return grant.Refused, uncommitted(s.op, fmt.Errorf("%w: %w", batch.ErrUnasked, err))
	}
	defer connection.Release()
	if end, bounded := ctx.Deadline(); bounded && time.Until(end) < acquireTimeout {
		return grant.Refused, uncommitted(s.op, fmt.Errorf("%w: %w", batch.ErrUnasked, errLate))
	}
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	passed, err := run(ctx, connection.Conn(), s.wait, one)
	if err != nil {
		return grant.Refused, uncommitted(s.op, err)
	}
	if passed {
		return grant.Updated, nil
	}
	var state string
	var generation int32
	err = connection.QueryRow(ctx, `select state, generation from account.grants where id = $1`, one.id).
		Scan(&state, &generation)
	if errors.Is(err, pgx.ErrNoRows) {
		return grant.Refused, nil
	}
	if err != nil {
		return grant.Refused, uncommitted(s.op, err)
	}
	// Revoked while this very step was under way: the winner of a race keeps its answer, which is dead already.
	if grant.State(state) == grant.Revoked && generation == before {
		return grant.Overtaken, nil
	}
	return grant.Refused, nil
}

// errLate says that a statement would be cut off while it may be committing.
var errLate = errors.New("too late to begin")

// run says whether sql took the step. Its arguments have no names, for those are looked for in the text each time.
func run(ctx context.Context, connection *pgx.Conn, sql string, one updateStep) (bool, error) {
	tag, err := connection.Exec(ctx, sql, one.id, one.generation, one.hash, one.binding, one.nonce)
	return tag.RowsAffected() == 1, err
}

// runMany returns the places of the steps that sql took.
func runMany(ctx context.Context, connection *pgx.Conn, sql string, all []updateStep) ([]int, error) {
	ids, generations := make([]uuid.UUID, len(all)), make([]int32, len(all))
	hashes, bindings, nonces := make([][]byte, len(all)), make([][]byte, len(all)), make([]string, len(all))
	for i, one := range all {
		ids[i], generations[i], hashes[i], bindings[i], nonces[i] = one.id, one.generation, one.hash, one.binding, one.nonce
	}
	rows, err := connection.Query(ctx, sql, ids, generations, hashes, bindings, nonces)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int])
}
