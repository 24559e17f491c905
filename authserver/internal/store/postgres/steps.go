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

// An updateStep moves a grant to a generation.
type updateStep struct {
	id            uuid.UUID
	generation    int32
	hash, binding []byte
	nonce         string // of the try; a given-up try is not taken (grants.md, G10)
}

// The steps whose grants exist, with their rows locked. The arrays are in subqueries for the same reason as
// in snapshotsSQL.
const (
	stepSQL = `(select $1::uuid id, $2::int generation, $3::bytea hash, $4::bytea binding, $5::text nonce, 1 place)
  asked`
	stepsSQL = `unnest((select $1::uuid[]), (select $2::int[]), (select $3::bytea[]), (select $4::bytea[]),
		(select $5::text[]))
  with ordinality asked (id, generation, hash, binding, nonce, place)`
	lockedSQL = `with step as (select asked.* from %s join account.grants g using (id) for no key update of g %s)`
)

// takenBySQL records the tries that took a step. A repeated request has the same hash (G11). At most three tries are
// recorded; a step with more is never reverted (grant.ManyTries).
const takenBySQL = `taken_by = case
    when g.state = 'pending' or g.generation < step.generation then array[step.nonce]
    when step.nonce = any (g.taken_by) or '*' = any (g.taken_by) then g.taken_by
    when cardinality(g.taken_by) < 3 then g.taken_by || step.nonce
    else '{*}' end`

// Activations commit durably: the use of a code must survive a crash (G1). A pending grant holds the result
// of one code's approval, and only that code activates it (G12).
const activateSQL = lockedSQL + `
update account.grants g set state = 'active', generation = step.generation, refresh_hash = step.hash,
  code_binding = step.binding,
  last_used_at = now(), ` + takenBySQL + `
from step
where g.id = step.id and not coalesce(step.nonce = any (g.given_up), false)
  and ((g.state = 'pending' and g.code_binding = step.binding)
    or (g.state = 'active' and g.generation = step.generation and g.refresh_hash = step.hash))
returning step.place`

// Advances do not wait for the disk: Redis holds the newer state, and a superseded token becomes current
// again only if both lose it within the same fraction of a second. The setting is local to the transaction,
// which is this statement, so it costs no round trip and does not affect commits that must be durable.
const advanceSQL = lockedSQL + `, hasty as materialized (select set_config('synchronous_commit', 'off', true))
update account.grants g set generation = step.generation, refresh_hash = step.hash, last_used_at = now(),
  ` + takenBySQL + `
from hasty, step
where g.id = step.id and g.state = 'active' and not coalesce(step.nonce = any (g.given_up), false)
  and (g.generation < step.generation or (g.generation = step.generation and g.refresh_hash = step.hash))
returning step.place`

// A stepBatcher batches the steps of one kind. Steps whose grants are not locked run together in one
// transaction. Steps of locked rows are retried individually: they wait for the lock, or read why they were
// refused.
type stepBatcher struct {
	store           *Store
	op              string
	many, one, wait string // one skips locked rows, like many
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
	return s.activations.update(ctx, stepOf(one, binding), 0)
}

// Advance moves an active grant on to a generation.
func (s *Store) Advance(ctx context.Context, one grant.Step) (grant.UpdateResult, error) {
	return s.advances.update(ctx, stepOf(one, nil), int32(one.Generation)-1)
}

func stepOf(one grant.Step, binding []byte) updateStep {
	return updateStep{
		id:         one.GrantID,
		generation: int32(one.Generation),
		hash:       one.Hash,
		binding:    binding,
		nonce:      one.Nonce,
	}
}

// giveUpSQL stores the nonces of the last eight given-up tries: as many as can be in flight at once. It reverts the
// step if no other try has taken it.
const giveUpSQL = `
with g as (
  select id, taken and taken_by <@ $2::text[] reverted,
    case when taken then array(select one from unnest(taken_by) one where one <> all ($2::text[])) else taken_by end
      taken_by,
    given_up || array(select one from unnest($2::text[]) one where one <> all (coalesce(given_up, '{}'))) given_up
  from account.grants,
    lateral (select coalesce(generation = $3 and refresh_hash = $4 and taken_by && $2::text[], false) taken) step
  where id = $1 and state <> 'revoked'
  for no key update of grants
)
update account.grants set
  given_up = g.given_up[greatest(cardinality(g.given_up) - 7, 1):],
  state = case when g.reverted and $3 = 1 then 'pending' else state end,
  generation = case when g.reverted then $3 - 1 else generation end,
  refresh_hash = case when g.reverted then $5 else refresh_hash end,
  taken_by = case when g.reverted then null else g.taken_by end
from g
where grants.id = g.id`

// GiveUp takes a step back from the tries with these nonces, and prevents them from taking it later.
func (s *Store) GiveUp(ctx context.Context, one grant.Step, nonces []string) error {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	_, err := s.pool.Exec(ctx, giveUpSQL, one.GrantID, nonces, int32(one.Generation), one.Hash, one.Former)
	return unavailable("cancel step", err)
}

// update takes one step from the generation before.
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

// updateBatch reports which of the steps were taken. It skips locked rows.
func (s *stepBatcher) updateBatch(ctx context.Context, all []updateStep) ([]bool, error) {
	connection, err := s.store.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", batch.ErrUnasked, err)
	}
	defer connection.Release()
	ctx, cancel := context.WithTimeout(
		context.WithoutCancel(ctx),
		acquireTimeout,
	) // independent of how long acquiring the connection took
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

// updateOne takes a step, waiting for the lock on its grant. If the step cannot be taken, it reads the
// reason.
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
	// The grant was revoked during this step: the winner of a race returns its tokens, which are already
	// invalid.
	if grant.State(state) == grant.Revoked && generation == before {
		return grant.Overtaken, nil
	}
	return grant.Refused, nil
}

// errLate reports that too little time is left to run a statement to its commit.
var errLate = errors.New("too late to start")

// run reports whether sql took the step. Its arguments are positional, because pgx parses the text for named
// ones each time.
func run(ctx context.Context, connection *pgx.Conn, sql string, one updateStep) (bool, error) {
	tag, err := connection.Exec(ctx, sql, one.id, one.generation, one.hash, one.binding, one.nonce)
	return tag.RowsAffected() == 1, err
}

// runMany returns the positions of the steps that sql took.
func runMany(ctx context.Context, connection *pgx.Conn, sql string, all []updateStep) ([]int, error) {
	ids, generations := make([]uuid.UUID, len(all)), make([]int32, len(all))
	hashes, bindings, nonces := make([][]byte, len(all)), make([][]byte, len(all)), make([]string, len(all))
	for i, one := range all {
		ids[i], generations[i] = one.id, one.generation
		hashes[i], bindings[i], nonces[i] = one.hash, one.binding, one.nonce
	}
	rows, err := connection.Query(ctx, sql, ids, generations, hashes, bindings, nonces)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int])
}
