// Package retention deletes the records of a service that are no longer needed, a few at a time.
//
// Both services run it, each for the tables of its own schema. Its rules:
//
//   - R1: a record is deleted when its period has passed by the clock of the database. A process whose clock is fast
//     deletes nothing early.
//   - R2: a statement deletes at most batch records and skips records that another transaction has locked, so that
//     requests do not wait for it. There is a pause between two statements.
//   - R3: any number of processes may run. Each kind is processed once per hour, by one of them. If a process stops
//     during a run, the next run deletes the rest.
package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	batch = 500
	pause = 50 * time.Millisecond
	// maxRunTime is the maximum time for one kind in a run, so that a long backlog does not delay the other kinds.
	maxRunTime = 10 * time.Minute
	// runInterval is how often a kind is processed. pollInterval is how often a process checks which kinds are due.
	runInterval  = time.Hour
	pollInterval = 5 * time.Minute
	// statementTimeout is longer than the timeout of a request, since a deletion may read many rows to find few.
	statementTimeout = 30 * time.Second
	// maxCounted is the maximum number of due records that are counted.
	maxCounted = 100_000
	// maxFailures is the number of workspaces whose records cannot be deleted after which a run of a kind ends.
	maxFailures = 10
)

// MaxDays is the longest period that a setting may have: a hundred years.
const MaxDays = 36_500

// Days returns the period of a setting.
func Days(days int) time.Duration { return time.Duration(days) * 24 * time.Hour }

// A Kind is one kind of record that is deleted when it is no longer needed.
type Kind struct {
	Name    string        // shown to operators
	Setting string        // the setting that determines Keep; "" if there is none
	Keep    time.Duration // how long a record is kept after the time that Due selects
	Forever bool          // records are never deleted
	Rule    string        // shown instead of Keep, if the period differs by record; otherwise ""
	// Prepare is a statement that a run executes first, even if records are never deleted; "" if there is none.
	Prepare string
	// Drop is a statement that drops one table of records that are all due and selects their number, or null if there
	// is none; "" if no table is dropped.
	Drop string
	// Due is a SELECT with one column, at: the times of the due records, oldest first. Records with a time before $1
	// are due.
	Due string
	// Delete is a statement that deletes at most $2 of them and selects their number.
	Delete string
	// Workspaces, if set, is a SELECT of the workspaces that may have due records. Delete then deletes only records of
	// the workspace $3, so that one node of a distributed database runs it.
	Workspaces string
}

// Configured returns the kind with a name and a period that is a setting. Zero keeps its records for ever.
func (k Kind) Configured(name, setting string, keep time.Duration) Kind {
	k.Name, k.Setting, k.Keep, k.Forever = name, setting, keep, keep == 0
	return k
}

// Fixed returns the kind with a name and a period that is not configurable.
func (k Kind) Fixed(name string, keep time.Duration) Kind {
	k.Name, k.Keep = name, keep
	return k
}

// RowsOf returns a Kind for the rows of a table, without its name and period. at is the SQL expression for the time of
// a row t. key has the columns of the primary key, separated by commas. where is an additional condition, or "".
func RowsOf(table, key, at, where string) Kind { return rowsOf(table, key, at, where, false) }

// RowsOfWorkspaces is RowsOf for a table whose rows belong to workspaces. key includes tenant_id.
func RowsOfWorkspaces(table, key, at, where string) Kind { return rowsOf(table, key, at, where, true) }

func rowsOf(table, key, at, where string, ofWorkspaces bool) Kind {
	due := fmt.Sprintf("from %s t where %s < $1", table, at)
	if where != "" {
		due += " and " + where
	}
	k := Kind{Due: fmt.Sprintf("select %s as at %s order by 1", at, due)}
	var same []string
	if ofWorkspaces {
		k.Workspaces = "select distinct t.tenant_id " + due
		due += " and t.tenant_id = $3"
		same = append(same, "t.tenant_id = $3")
	}
	for column := range strings.SplitSeq(key, ", ") {
		same = append(same, fmt.Sprintf("t.%[1]s = due.%[1]s", column))
	}
	k.Delete = fmt.Sprintf(`
		with due as materialized (
			select %s %s order by %s limit $2 for update of t skip locked
		), gone as (
			delete from %s t using due where %s returning 1)
		select count(*) from gone`, key, due, at, table, strings.Join(same, " and "))
	return k
}

// A Store deletes the records of one schema.
type Store struct {
	pool  *pgxpool.Pool
	runs  string // table of the runs
	kinds []Kind
	clock func() time.Time // nil for the database's
}

// NewStore returns the Store of a schema, which has a table retention_runs.
func NewStore(pool *pgxpool.Pool, schema string, kinds []Kind) *Store {
	return &Store{pool: pool, runs: pgx.Identifier{schema, "retention_runs"}.Sanitize(), kinds: kinds}
}

// At makes the store use clock instead of the clock of the database, if it is behind. Tests simulate a year with it.
func (s *Store) At(clock func() time.Time) *Store {
	s.clock = clock
	return s
}

// Kinds returns the kinds, in order.
func (s *Store) Kinds() []Kind { return s.kinds }

// until returns the time before which records of the kind are due.
func (s *Store) until(ctx context.Context, k Kind) (time.Time, error) {
	var now time.Time
	if err := s.pool.QueryRow(ctx, "select now()").Scan(&now); err != nil {
		return time.Time{}, fmt.Errorf("read the time of the database: %w", err)
	}
	if s.clock != nil && s.clock().Before(now) {
		now = s.clock()
	}
	return now.Add(-k.Keep), nil
}

// withTimeout runs work in a transaction with statementTimeout.
func (s *Store) withTimeout(ctx context.Context, work func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		limit := fmt.Sprintf("set local statement_timeout = %d", statementTimeout.Milliseconds())
		if _, err := tx.Exec(ctx, limit); err != nil {
			return err
		}
		return work(ctx, tx)
	})
}

// A Status describes the due records of a kind and its last run.
type Status struct {
	Due      int        `json:"due"`     // counted up to 100,000
	Oldest   *time.Time `json:"oldest"`  // of the due ones
	LastRun  *time.Time `json:"lastRun"` // by a service
	Deleted  int64      `json:"deleted"` // by the last run
	Complete bool       `json:"-"`       // the last run deleted all that was due
}

// Status returns the status of a kind.
func (s *Store) Status(ctx context.Context, k Kind) (status Status, err error) {
	until, err := s.until(ctx, k)
	if err != nil {
		return Status{}, err
	}
	err = s.withTimeout(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if !k.Forever {
			text := fmt.Sprintf("select count(*), min(at) from (select at from (%s) d limit %d) c", k.Due, maxCounted)
			if err := tx.QueryRow(ctx, text, until).Scan(&status.Due, &status.Oldest); err != nil {
				return fmt.Errorf("count the due %s: %w", k.Name, err)
			}
		}
		err := tx.QueryRow(ctx, "select started_at, deleted, complete from "+s.runs+" where kind = $1", k.Name).
			Scan(&status.LastRun, &status.Deleted, &status.Complete)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("read the last run: %w", err)
		}
		return nil
	})
	return status, err
}

// Delete deletes the due records of a kind, for up to ten minutes, and returns their number. complete is true if it
// deleted all of them except those that other transactions had locked.
func (s *Store) Delete(ctx context.Context, k Kind) (deleted int64, complete bool, err error) {
	if k.Forever {
		return 0, true, nil
	}
	end := time.Now().Add(maxRunTime)
	until, err := s.until(ctx, k)
	var parts [][]any
	if err == nil {
		parts, err = s.parts(ctx, k, until)
	}
	if err == nil && k.Drop != "" {
		deleted, _, err = s.repeat(ctx, k.Drop, []any{until}, end, func(n *int64) bool { return n == nil })
	}
	if err != nil {
		return deleted, false, fmt.Errorf("delete %s: %w", k.Name, err)
	}
	complete = true
	// A workspace whose records cannot be deleted does not stop the others. After maxFailures of them, the run ends;
	// the other workspaces follow in the next run.
	rand.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	var failures []error
	for _, args := range parts {
		n, all, err := s.repeat(ctx, k.Delete, args, end, func(n *int64) bool { return n != nil && *n < batch })
		deleted += n
		complete = complete && all
		if err != nil {
			failures = append(failures, fmt.Errorf("delete %s: %w", k.Name, err))
		}
		if len(failures) == maxFailures || ctx.Err() != nil {
			break
		}
	}
	return deleted, complete && len(failures) == 0, errors.Join(failures...)
}

// parts returns the arguments of Delete: for each workspace, or once if the kind has no workspaces.
func (s *Store) parts(ctx context.Context, k Kind, until time.Time) (all [][]any, err error) {
	if k.Workspaces == "" {
		return [][]any{{until, batch}}, nil
	}
	var args []any
	if strings.Contains(k.Workspaces, "$1") {
		args = append(args, until)
	}
	err = s.withTimeout(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, k.Workspaces, args...)
		if err != nil {
			return err
		}
		var workspaceID uuid.UUID
		_, err = pgx.ForEachRow(rows, []any{&workspaceID}, func() error {
			all = append(all, []any{until, batch, workspaceID})
			return nil
		})
		return err
	})
	return all, err
}

// repeat runs a statement that deletes records and returns their number, each time in a new transaction, until last
// returns true for that number or end has passed. complete reports whether last returned true.
func (s *Store) repeat(
	ctx context.Context, text string, args []any, end time.Time, last func(*int64) bool,
) (deleted int64, complete bool, err error) {
	for time.Now().Before(end) {
		var n *int64
		err := s.withTimeout(ctx, func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, text, args...).Scan(&n)
		})
		if err != nil {
			return deleted, false, err
		}
		switch {
		case n != nil:
			deleted += *n
		case !last(n):
			return deleted, false, errors.New("the statement returned no number")
		}
		if last(n) {
			return deleted, true, nil
		}
		select {
		case <-ctx.Done():
			return deleted, false, ctx.Err()
		case <-time.After(pause):
		}
	}
	return deleted, false, nil
}

// claim reports whether no process has processed the kind within an hour, and reserves it for this process.
func (s *Store) claim(ctx context.Context, k Kind) (bool, error) {
	tag, err := s.pool.Exec(ctx, `
		insert into `+s.runs+` (kind, started_at, deleted, complete) values ($1, now(), 0, false)
		on conflict (kind) do nothing`, k.Name)
	if err == nil && tag.RowsAffected() == 0 {
		tag, err = s.pool.Exec(ctx, `
			update `+s.runs+` set started_at = now(), deleted = 0, complete = false
			where kind = $1 and started_at <= now() - $2::interval`, k.Name, runInterval)
	}
	if err != nil {
		return false, fmt.Errorf("begin a run: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

// A Report is called with the number of records of a kind that a run deleted.
type Report func(kind string, deleted int64)

// RunOnce deletes the due records of each kind that no process has processed within an hour. An error of one kind does
// not stop the others.
func (s *Store) RunOnce(ctx context.Context, report Report, log *slog.Logger) error {
	var failures []error
	for _, k := range s.kinds {
		if k.Forever && k.Prepare == "" || ctx.Err() != nil {
			continue
		}
		if err := s.runKind(ctx, k, report, log); err != nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

func (s *Store) runKind(ctx context.Context, k Kind, report Report, log *slog.Logger) error {
	if mine, err := s.claim(ctx, k); err != nil || !mine {
		return err
	}
	if k.Prepare != "" {
		err := s.withTimeout(ctx, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, k.Prepare)
			return err
		})
		if err != nil {
			return fmt.Errorf("prepare %s: %w", k.Name, err)
		}
	}
	deleted, complete, err := s.Delete(ctx, k)
	report(k.Name, deleted)
	if deleted > 0 {
		log.InfoContext(ctx, "old records deleted", "kind", k.Name, "deleted", deleted, "complete", complete)
	}
	if err != nil {
		return err
	}
	_, err = s.pool.Exec(ctx, "update "+s.runs+" set deleted = $2, complete = $3 where kind = $1",
		k.Name, deleted, complete)
	if err != nil {
		return fmt.Errorf("end a run: %w", err)
	}
	return nil
}

// Run calls RunOnce every five minutes until ctx ends, and logs its errors.
func (s *Store) Run(ctx context.Context, report Report, log *slog.Logger) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		if err := s.RunOnce(ctx, report, log); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "old records not deleted", "cause", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
