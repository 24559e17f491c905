package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/database/pg"
)

// An updateStep moves a grant to a generation.
type updateStep struct {
	grant.Step
	// Of direct steps: the client, the resource, and what a connector can be granted there, separated by spaces.
	client           uuid.UUID
	resource, usable string
	scope            string // of direct refreshes: what the grant must have, separated by spaces; "" for nothing
}

// lockedSQL is the steps whose grants exist, with their rows locked. step has those of them that may be taken. The
// arrays are in subqueries for the same reason as in snapshotsSQL. Because of the limit, Postgres expects few steps,
// and finds each grant by the index, however small the table was when it made the plan. The first %s is stepSQL.hasty,
// which is read before a row is locked. The second is directSQL or "".
const lockedSQL = `with found as (
  select asked.*, g as own, now() as taken_at, ` + liveKeysSQL + ` key_ids
  from (select * from unnest((select $1::uuid[]), (select $2::int[]), (select $3::bytea[]), (select $4::bytea[]),
      (select $5::text[]), (select $6::uuid[]), (select $7::text[]), (select $8::text[]), (select $9::uuid[]),
      (select $10::text[])) with ordinality limit cardinality((select $1::uuid[])))
    asked (id, generation, hash, binding, nonce, tenant_id, resource, scope, client, usable, place)
  join account.grants g using (tenant_id, id)%s
  for no key update of g skip locked
), step as materialized (
  select step.* from found step, lateral (select (step.own).*) g where true%s
)`

// directSQL selects the grants that a client without authentication may use now. It is grant.Snapshot.Blocked for
// connectors (TestDirectSteps_AreRefusedWhereSnapshotIsBlocked). It refuses all steps of a statement if one is in a
// workspace that has a row in account.endings: Postgres evaluates that once. The scalar subquery is read after the
// grant. Postgres would make joins of an exists, in an order that depends on statistics, and read all grants of the
// user for each step (TestDirectSteps_ReadNoOtherGrants).
const directSQL = termsSQL + `
  and (select true from account.oauth_clients c
    join account.users u on u.id = g.user_id and u.disabled_at is null
    join account.memberships m on m.tenant_id = g.tenant_id and m.user_id = g.user_id
      and exists (select from unnest(g.permissions) one
        where one = any (m.permissions) and one = any (string_to_array(step.usable, ' ')))
    join account.tenant_features f on f.tenant_id = g.tenant_id and f.feature = 'llm_integration' and f.enabled
    where c.id = g.client_id and c.id = step.client and c.kind = 'connector'
      and c.token_endpoint_auth_method = 'none' and c.deleted_at is null)
  and not exists (select from account.endings where tenant_id = any ((select $6::uuid[])::uuid[]))`

// directAloneSQL is directSQL for a single step. It excludes only grants that are ending. Its function reads the other
// tables: on a distributed Postgres it does so on the node of the grant, so that Citus sees a statement about one row
// of one table, whose plan it keeps.
const directAloneSQL = termsSQL + `
  and account.usable_grant(step.tenant_id, g.id, g.client_id, g.user_id, g.permissions, g.created_at, step.client,
    step.usable)`

const termsSQL = `
  and g.resource = step.resource and g.ends_at >= now() + interval '1 second'
  and g.permissions @> string_to_array(step.scope, ' ')`

// inAlone replaces the columns of step with the parameters of a single step.
var inAlone = strings.NewReplacer("step.id", "$1::uuid", "step.generation", "$2::int", "step.hash", "$3::bytea",
	"step.binding", "$4::bytea", "step.nonce", "$5::text", "step.tenant_id", "$6::uuid", "step.resource", "$7",
	"step.scope", "$8", "step.client", "$9", "step.usable", "$10", "step.taken_at", "now()")

// sameTrySQL restricts the repetition of a step to the try that took it. A direct step is not a repeated request: Redis
// has just decided it. If Postgres holds it nevertheless, Redis has lost data.
const sameTrySQL = ` and step.nonce = any (g.taken_by)`

// takenBySQL records the tries that took a step. A repeated request has the same hash (G11). At most three tries are
// recorded; a step with more is never reverted (grant.ManyTries).
const takenBySQL = `taken_by = case
    when g.state = 'pending' or g.generation < step.generation then array[step.nonce]
    when step.nonce = any (g.taken_by) or '*' = any (g.taken_by) then g.taken_by
    when cardinality(g.taken_by) < 3 then g.taken_by || step.nonce
    else '{*}' end`

// A stepSQL is the statement of a kind of step: what it sets, its further condition on the grant, and what else it
// reads so that its commit does not wait for the disk. The condition is a format: %s is sameTrySQL or "".
type stepSQL struct{ set, where, hasty string }

// activateSQL commits durably: the use of a code must survive a crash (G1). A pending grant holds the result
// of one code's approval, and only that code activates it (G12).
var activateSQL = stepSQL{
	set: `state = 'active', generation = step.generation, refresh_hash = step.hash,
  code_binding = step.binding, last_used_at = step.taken_at, renewed_at = step.taken_at, ` + takenBySQL,
	where: `
  and not coalesce(step.nonce = any (g.given_up), false)
  and ((g.state = 'pending' and g.code_binding = step.binding)
    or (g.state = 'active' and g.generation = step.generation and g.refresh_hash = step.hash%s))`,
}

// advanceSQL does not wait for the disk: Redis holds the newer state, and a superseded token becomes current
// again only if both lose it within the same fraction of a second. The setting is local to the transaction,
// which is this statement, so it costs no round trip and does not affect commits that must be durable. On a distributed
// Postgres, where it would not reach the other nodes, a step has no such setting.
var advanceSQL = stepSQL{
	hasty: `, (select set_config('synchronous_commit', 'off', true)) hasty`,
	set: `generation = step.generation, refresh_hash = step.hash,
  last_used_at = step.taken_at, renewed_at = step.taken_at, ` + takenBySQL,
	where: ` and g.state = 'active' and step.binding is null
  and not coalesce(step.nonce = any (g.given_up), false)
  and (g.generation < step.generation
    or (g.generation = step.generation and g.refresh_hash = step.hash%s))`,
}

const (
	updateSQL   = "\nupdate account.grants g set "
	thisStepSQL = "\nwhere g.tenant_id = step.tenant_id and g.id = step.id"
)

// many returns the statement for several steps. It skips locked rows and, for direct steps, workspaces with endings.
func (s stepSQL) many(direct, sameTry string) string {
	return fmt.Sprintf(lockedSQL, s.hasty, direct) + updateSQL + s.set + "\nfrom step" + thisStepSQL +
		fmt.Sprintf(s.where, sameTry) + "\nreturning step.place, step.taken_at, step.key_ids, " + grantColumns
}

// alone returns the statement for a single step, which waits for the lock. The function in its result has an argument
// that Postgres cannot know before it runs the statement. hasty is s.hasty or "".
func (s stepSQL) alone(hasty, direct, sameTry string) string {
	from := strings.Replace(hasty, ",", "\nfrom", 1)
	return inAlone.Replace(updateSQL+s.set+from+thisStepSQL+fmt.Sprintf(s.where, sameTry)+direct) +
		"\nreturning 1, g.last_used_at, account.live_keys(g.id), " + grantColumns
}

// A stepBatcher batches the steps of one kind. Steps whose grants are not locked run together in one
// transaction. Those of locked rows, and those that it refuses, are retried individually: they wait for the lock, or
// read why they were refused.
type stepBatcher struct {
	db    *db
	pool  *pgxpool.Pool
	limit time.Duration // of each wait for a batch or a connection, and of each statement
	op    string
	// many is the statement for any number of steps. It skips locked rows and, for direct steps, workspaces with
	// endings. alone is for a single step, and waits for the lock. That with true is for a distributed Postgres.
	many   string
	alone  map[bool]string
	direct bool
	// The answer to a step is the grant after it, with the time and the key ids, or no grant if the step was refused.
	batches pg.Batcher[updateStep, grant.Snapshot]
}

// newStepBatcher returns the batcher of a statement for direct steps or for others.
func (g *Grants) newStepBatcher(pool *pgxpool.Pool, op string, sql stepSQL, direct bool) *stepBatcher {
	b := &stepBatcher{db: g.db, pool: pool, limit: g.operationLimit, op: op, direct: direct}
	many, alone, sameTry := "", "", ""
	if direct {
		many, alone, sameTry = directSQL, directAloneSQL, sameTrySQL
	}
	b.many = sql.many(many, sameTry)
	b.alone = map[bool]string{false: sql.alone(sql.hasty, alone, sameTry), true: sql.alone("", alone, sameTry)}
	b.batches = batcher(g.db, b.updateBatch)
	b.batches.Stay = true
	return b
}

// Advance moves a pending grant to generation 1, or an active one on to a generation.
func (g *Grants) Advance(ctx context.Context, one grant.Step) (grant.UpdateResult, error) {
	batcher := g.advances
	if one.Binding != nil {
		batcher = g.activations
	}
	_, result, err := batcher.update(ctx, updateStep{Step: one})
	return result, err
}

// AdvanceDirectly is Advance for a grant that its client and user may use.
func (g *Grants) AdvanceDirectly(
	ctx context.Context, one grant.Step, terms grant.CodeTerms, scope perm.Set,
) (grant.Snapshot, grant.UpdateResult, error) {
	batcher := g.directAdvances
	if one.Binding != nil {
		batcher = g.directActivations
	}
	return batcher.update(ctx, updateStep{
		Step:     one,
		client:   terms.ClientID,
		resource: terms.Resource,
		usable:   perm.ForConnectors().Usable(terms.Resource).Scope(),
		scope:    scope.Scope(),
	})
}

// cancelTriesSQL stores the nonces of the last eight given-up tries: as many as can be in flight at once. It reverts
// the step if no other try has taken it. At most three tries are recorded, so no more than three have to be removed.
// It has no subquery, because Citus crashes on a lateral one.
const (
	cancelTriesSQL = `
update account.grants set
  given_up = case when given_up @> $2::text[] then given_up
    else given_up[greatest(cardinality(given_up) + cardinality($2) - 7, 1):] || $2 end,
  state = case when ` + revertedSQL + ` and $3 = 1 then 'pending' else state end,
  generation = case when ` + revertedSQL + ` then $3 - 1 else generation end,
  refresh_hash = case when ` + revertedSQL + ` then $5 else refresh_hash end,
  taken_by = case
    when ` + revertedSQL + ` then null
    when generation = $3 and refresh_hash = $4 then
      array_remove(array_remove(array_remove(taken_by, ($2)[1]), ($2)[2]), ($2)[3])
    else taken_by end
where tenant_id = $6 and id = $1 and state <> 'revoked'`

	revertedSQL = `generation = $3::int and refresh_hash = $4::bytea and taken_by && $2::text[] and taken_by <@ $2`
)

// CancelTries implements grant.GrantStore: the step no longer counts as taken by the tries with these nonces, and they
// cannot take it later.
func (g *Grants) CancelTries(ctx context.Context, one grant.Step, nonces []string) error {
	_, err := g.exec(ctx, "cancel step", cancelTriesSQL, one.GrantID, nonces, int32(one.Generation), one.Hash,
		one.Former, one.WorkspaceID)
	return err
}

// refusedSQL reads why a step was refused.
const refusedSQL = `select now(), ` + grantColumns + ` from account.grants g where g.tenant_id = $1 and g.id = $2`

// update takes one step from the generation before. It returns the grant unless the step is refused.
func (s *stepBatcher) update(ctx context.Context, one updateStep) (grant.Snapshot, grant.UpdateResult, error) {
	if s.db.distributed.Load() {
		return s.updateOne(ctx, one)
	}
	waiting, stop := context.WithTimeout(ctx, s.limit)
	defer stop()
	taken, err := s.batches.Do(waiting, one)
	if err != nil {
		return grant.Snapshot{}, grant.Refused, uncommitted(s.op, err)
	}
	if taken.Grant != nil {
		return taken, grant.Updated, nil
	}
	return s.updateOne(ctx, one)
}

// updateBatch takes the steps that are not refused. It skips locked rows.
func (s *stepBatcher) updateBatch(ctx context.Context, all []updateStep) ([]grant.Snapshot, error) {
	connection, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", pg.ErrNotSent, err)
	}
	defer connection.Release()
	// The limit is independent of how long acquiring the connection took.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limit)
	defer cancel()
	var taken []grant.Snapshot
	for range 2 { // after a migration, Postgres refuses a prepared statement once
		taken, err = run(ctx, connection.Conn(), s.many, len(all), stepArguments(all))
		if refused, is := errors.AsType[*pgconn.PgError](err); !is || refused.Code != featureNotSupported {
			return taken, err
		}
	}
	var found bool
	if connection.QueryRow(ctx, "select to_regclass('pg_dist_partition') is not null").Scan(&found) != nil || !found {
		return nil, err
	}
	// In a distributed Postgres, a statement can only lock rows of one workspace.
	s.db.distributed.Store(true)
	return make([]grant.Snapshot, len(all)), nil // each is then retried individually
}

// featureNotSupported is the SQLSTATE code of a statement that a distributed Postgres does not accept.
const featureNotSupported = "0A000"

// updateOne takes a step, waiting for the lock on its grant. If the step cannot be taken, it reads the reason.
func (s *stepBatcher) updateOne(ctx context.Context, one updateStep) (grant.Snapshot, grant.UpdateResult, error) {
	waiting, stop := context.WithTimeout(ctx, s.limit)
	defer stop()
	connection, err := s.acquire(waiting, one.WorkspaceID)
	if err != nil {
		return grant.Snapshot{}, grant.Refused, uncommitted(s.op, fmt.Errorf("%w: %w", pg.ErrNotSent, err))
	}
	defer connection.Release()
	if end, bounded := ctx.Deadline(); bounded && time.Until(end) < s.limit {
		return grant.Snapshot{}, grant.Refused, uncommitted(s.op, fmt.Errorf("%w: %w", pg.ErrNotSent, errLate))
	}
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	taken, err := run(ctx, connection.Conn(), s.alone[s.db.distributed.Load()], 1, s.argumentsAlone(one))
	if err != nil {
		return grant.Snapshot{}, grant.Refused, uncommitted(s.op, err)
	}
	if taken[0].Grant != nil {
		return taken[0], grant.Updated, nil
	}
	var g grant.Grant
	var now time.Time
	err = connection.QueryRow(ctx, refusedSQL, one.WorkspaceID, one.GrantID).
		Scan(append([]any{&now}, grantTargets(&g)...)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return grant.Snapshot{}, grant.Refused, nil
	}
	if err != nil {
		return grant.Snapshot{}, grant.Refused, uncommitted(s.op, err)
	}
	refused := grant.Snapshot{Now: now, Grant: foundGrant(g)}
	if !overtaken(refused, one.Step) {
		return grant.Snapshot{}, grant.Refused, nil
	}
	claimed, err := connection.Exec(ctx, claimRevokedSQL, one.WorkspaceID, one.GrantID, int32(one.Generation), one.Hash)
	if err != nil {
		return grant.Snapshot{}, grant.Refused, uncommitted(s.op, err)
	}
	if claimed.RowsAffected() == 0 {
		return grant.Snapshot{}, grant.Refused, nil
	}
	return refused, grant.Overtaken, nil
}

// claimRevokedSQL gives the generation of a revoked grant to the first step. If Redis was restored from an older copy,
// two steps to the same generation may find the grant revoked, and only one may succeed (G2). If Postgres lost an
// advance in a crash, the generation before the step may be missing.
const claimRevokedSQL = `update account.grants set generation = $3, refresh_hash = $4
	where tenant_id = $1 and id = $2 and state = 'revoked'
		and (generation < $3 or (generation = $3 and refresh_hash = $4))`

// overtaken reports whether the grant was revoked during the step: the winner of a race returns its tokens, which are
// already invalid. If the step was tried before, the grant already has its generation and hash. A step that is not
// direct began after a snapshot in which the grant was not revoked.
func overtaken(t grant.Snapshot, step grant.Step) bool {
	g := t.Grant
	again := g.Generation == step.Generation && bytes.Equal(g.RefreshHash, step.Hash)
	if g.State != grant.Revoked || (g.Generation >= step.Generation && !again) {
		return false
	}
	return step.Began.IsZero() || (g.RevokedAt != nil && t.Now.Sub(*g.RevokedAt) <= time.Since(step.Began))
}

// errLate reports that too little time is left to run a statement to its commit.
var errLate = errors.New("too late to start")

// run takes the steps that are not refused. The arguments of sql are positional, because pgx parses the text for named
// ones each time.
func run(ctx context.Context, connection *pgx.Conn, sql string, steps int, args []any) ([]grant.Snapshot, error) {
	rows, err := connection.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	taken := make([]grant.Snapshot, steps)
	for rows.Next() {
		var place int
		var now time.Time
		var g grant.Grant
		var keyIDs pgtype.FlatArray[string]
		if err := rows.Scan(append([]any{&place, &now, &keyIDs}, grantTargets(&g)...)...); err != nil {
			return nil, err
		}
		taken[place-1] = grant.Snapshot{Now: now, Grant: foundGrant(g), KeyIDs: keyIDs}
	}
	return taken, rows.Err()
}

// argumentsAlone returns the arguments of s.alone.
func (s *stepBatcher) argumentsAlone(one updateStep) []any {
	args := []any{one.GrantID, int32(one.Generation), one.Hash, one.Binding, one.Nonce, one.WorkspaceID}
	if s.direct {
		args = append(args, one.resource, one.scope, one.client, one.usable)
	}
	return args
}

func stepArguments(all []updateStep) []any {
	n := len(all)
	ids, generations, clients := make([]uuid.UUID, n), make([]int32, n), make([]uuid.UUID, n)
	workspaces := make([]uuid.UUID, n)
	hashes, bindings, nonces := make([][]byte, n), make([][]byte, n), make([]string, n)
	resources, usable, scopes := make([]string, n), make([]string, n), make([]string, n)
	for i, one := range all {
		ids[i], generations[i], clients[i] = one.GrantID, int32(one.Generation), one.client
		workspaces[i] = one.WorkspaceID
		hashes[i], bindings[i], nonces[i] = one.Hash, one.Binding, one.Nonce
		resources[i], usable[i], scopes[i] = one.resource, one.usable, one.scope
	}
	return []any{ids, generations, hashes, bindings, nonces, workspaces, resources, scopes, clients, usable}
}
