package postgres

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// CommandTime is the time limit of an operation of an operator's command.
const CommandTime = commandTime

// Limits returns the time limits of a transaction and of any other operation, and how long Postgres waits for a lock.
func (s *Store) Limits(ctx context.Context) (transaction, operation time.Duration, lock string, err error) {
	err = s.pool.QueryRow(ctx, "show lock_timeout").Scan(&lock)
	return s.limit, s.operationLimit, lock, err
}

// SetLimit changes the time limit of all operations.
func (s *Store) SetLimit(limit time.Duration) { s.limit, s.operationLimit = limit, limit }

// NodeOf returns the host and port of the node that refreshes of a workspace go to in a distributed Postgres, or "" if
// it is any.
func (s *Store) NodeOf(ctx context.Context, workspaceID uuid.UUID) string {
	s.SetDistributed()
	chosen := s.nodeOf(ctx, workspaceID)
	for address, pool := range s.nodes.pools {
		if pool == chosen {
			return address
		}
	}
	return ""
}

// SetDistributed makes the store take single steps, as in a distributed Postgres.
func (s *Store) SetDistributed() { s.distributed.Store(true) }

// Distributed reports whether the store treats Postgres as distributed.
func (s *Store) Distributed() bool { return s.distributed.Load() }

// Acquire acquires a connection of requests, which the caller releases.
func (s *Store) Acquire(ctx context.Context) (*pgxpool.Conn, error) { return s.pool.Acquire(ctx) }

// RowsReadByDirectStep takes a direct refresh in a transaction that it rolls back, and returns the number of rows of
// account.grants that its statement read.
func (s *Store) RowsReadByDirectStep(
	ctx context.Context, on *pgxpool.Conn, step grant.Step, client uuid.UUID, resource string,
) (read int, err error) {
	tx, err := on.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	one := updateStep{Step: step, client: client, resource: resource}
	one.usable = perm.ForConnectors().Usable(resource).Scope()
	var before, after int // with those of earlier transactions, which Postgres reports once a second
	const counted = `select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)
		from pg_stat_xact_user_tables where relid = 'account.grants'::regclass`
	if err := tx.QueryRow(ctx, counted).Scan(&before); err != nil {
		return 0, err
	}
	if _, err := run(ctx, on.Conn(), s.directAdvances.many, 1, stepArguments([]updateStep{one})); err != nil {
		return 0, err
	}
	err = tx.QueryRow(ctx, counted).Scan(&after)
	return after - before, err
}

// Try runs a statement as the service's role.
func (s *Store) Try(ctx context.Context, sql string) error {
	_, err := s.pool.Exec(ctx, sql)
	return err
}

// TakeAll acquires every connection that requests may use. The caller releases them with release.
func (s *Store) TakeAll(ctx context.Context) (release func(), err error) {
	var all []*pgxpool.Conn
	release = func() {
		for _, one := range all {
			one.Release()
		}
	}
	for range s.pool.Config().MaxConns {
		one, err := s.pool.Acquire(ctx)
		if err != nil {
			release()
			return nil, err
		}
		all = append(all, one)
	}
	return release, nil
}

// TakeDirectly activates grants in one statement. It returns a grant for each step that is not refused.
func (s *Store) TakeDirectly(
	ctx context.Context, steps []grant.Step, binding []byte, clientID uuid.UUID, resource string,
) ([]*grant.Grant, error) {
	all := make([]updateStep, len(steps))
	for i, step := range steps {
		step.Binding = binding
		usable := perm.ForConnectors().Usable(resource).Scope()
		all[i] = updateStep{Step: step, client: clientID, resource: resource, usable: usable}
	}
	taken, err := s.Grants.directActivations.updateBatch(ctx, all)
	grants := make([]*grant.Grant, len(taken))
	for i, one := range taken {
		grants[i] = one.Grant
	}
	return grants, err
}

// PlansOfSearch executes a search of each log and returns its plan by the name of the log.
func (s *Store) PlansOfSearch(
	ctx context.Context, of uuid.UUID, search audit.Search, from audit.Cursor,
) (plans map[string]string, err error) {
	args := searchArgs(of, search, from, 51)

	plans = map[string]string{
		"audit log":      namedSQL + eventsSQL(`e.tenant_id = @of`, search, from) + namesSQL,
		"connection log": foundSQL(search, from),
	}
	for log, text := range plans {
		rows, err := s.pool.Query(ctx, "explain (analyze, buffers) "+text, args)
		if err != nil {
			return nil, err
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, err
		}
		plans[log] = strings.Join(lines, "\n")
	}
	return plans, nil
}
