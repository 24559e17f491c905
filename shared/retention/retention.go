// Package retention deletes the records of a service that are no longer needed, a few at a time.
//
// Both services run it, each for the tables of its own schema. Its rules:
//
//   - R1: a record is deleted once its kind's time has passed, by the clock of the database. A clock of the process
//     that runs ahead deletes nothing early.
//   - R2: a statement deletes at most batch records and skips those that another transaction has locked, so that
//     requests do not wait for it. Between two statements there is a pause.
//   - R3: any number of processes may run. One of them works on a kind within an hour. What a process leaves when it
//     stops, the next run deletes.
package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	batch = 500
	pause = 50 * time.Millisecond
	// longestRun bounds the work on one kind, so that a long backlog of one does not hold up the others.
	longestRun = 10 * time.Minute
	// every is how often a kind is worked on, and lookEvery how often a process looks for kinds to work on.
	every     = time.Hour
	lookEvery = 5 * time.Minute
	// patience bounds one statement. A deletion has more time than a request: it may read many rows to find few.
	patience = 30 * time.Second
	// maxCounted bounds the count of due records.
	maxCounted = 100_000
)

// A Kind is one kind of record that is deleted when it is no longer needed.
type Kind struct {
	Name    string        // as an operator reads it
	Setting string        // the setting that Keep comes from; "" if there is none
	Keep    time.Duration // how long a record is kept after its time
	Forever bool          // nothing is deleted
	Rule    string        // what Keep cannot say; "" if nothing
	// Due is a select of one column, at, the times of the due records, the oldest first. $1 is the time until which
	// records are due.
	Due string
	// Delete deletes at most $2 of them and selects how many.
	Delete string
}

// RowsOf returns a Kind without its name and times, of the records of a table whose expression at is in the past. key
// is the primary key, its columns separated by commas. where is a further condition, or "".
func RowsOf(table, key, at, where string) Kind {
	due := fmt.Sprintf("from %s t where %s < $1", table, at)
	if where != "" {
		due += " and " + where
	}
	var same []string
	for column := range strings.SplitSeq(key, ", ") {
		same = append(same, fmt.Sprintf("t.%[1]s = due.%[1]s", column))
	}
	return Kind{
		Due: fmt.Sprintf("select %s as at %s order by 1", at, due),
		Delete: fmt.Sprintf(`
			with due as materialized (
				select %[2]s from %[1]s order by %[3]s limit $2 for update of t skip locked
			), gone as (
				delete from %[4]s t using due where %[5]s returning 1)
			select count(*) from gone`, due[len("from "):], key, at, table, strings.Join(same, " and ")),
	}
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

// At makes the store take a time of clock for now unless it is in the future. Tests simulate a year with it.
func (s *Store) At(clock func() time.Time) *Store {
	s.clock = clock
	return s
}

// Kinds returns the kinds, in order.
func (s *Store) Kinds() []Kind { return s.kinds }

// until returns the time until which records of the kind are due.
func (s *Store) until(ctx context.Context, k Kind) (time.Time, error) {
	var now time.Time
	if err := s.pool.QueryRow(ctx, "select now()").Scan(&now); err != nil {
		return time.Time{}, fmt.Errorf("ask the database for the time: %w", err)
	}
	if s.clock != nil && s.clock().Before(now) {
		now = s.clock()
	}
	return now.Add(-k.Keep), nil
}

// inTurn runs work in a transaction whose statements may take as long as patience.
func (s *Store) inTurn(ctx context.Context, work func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		limit := fmt.Sprintf("set local statement_timeout = %d", patience.Milliseconds())
		if _, err := tx.Exec(ctx, limit); err != nil {
			return err
		}
		return work(ctx, tx)
	})
}

// A Status is what is due of a kind, and how its last run ended.
type Status struct {
	Due      int // counted up to 100,000
	Oldest   *time.Time
	LastRun  *time.Time
	Deleted  int64 // by the last run
	Complete bool  // the last run deleted all that was due
}

// Status returns the status of a kind.
func (s *Store) Status(ctx context.Context, k Kind) (status Status, err error) {
	until, err := s.until(ctx, k)
	if err != nil {
		return Status{}, err
	}
	err = s.inTurn(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if !k.Forever {
			text := fmt.Sprintf("select count(*), min(at) from (select at from (%s) d limit %d) c", k.Due, maxCounted)
			if err := tx.QueryRow(ctx, text, until).Scan(&status.Due, &status.Oldest); err != nil {
				return fmt.Errorf("count the due %s: %w", k.Name, err)
			}
		}
		rows, err := tx.Query(ctx, "select started_at, deleted, complete from "+s.runs+" where kind = $1", k.Name)
		if err != nil {
			return fmt.Errorf("read the last run: %w", err)
		}
		_, err = pgx.ForEachRow(rows, []any{&status.LastRun, &status.Deleted, &status.Complete},
			func() error { return nil })
		return err
	})
	return status, err
}

// Delete deletes the due records of a kind, for up to ten minutes, and returns their number. It reports whether none is
// left, but for those that other transactions had locked.
func (s *Store) Delete(ctx context.Context, k Kind) (deleted int64, complete bool, err error) {
	if k.Forever {
		return 0, true, nil
	}
	until, err := s.until(ctx, k)
	if err != nil {
		return 0, false, err
	}
	for begun := time.Now(); time.Since(begun) < longestRun; {
		var n int64
		err := s.inTurn(ctx, func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, k.Delete, until, batch).Scan(&n)
		})
		if err != nil {
			return deleted, false, fmt.Errorf("delete %s: %w", k.Name, err)
		}
		deleted += n
		if n < batch {
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

// claim reports whether no process has worked on the kind within an hour, and that this one now does.
func (s *Store) claim(ctx context.Context, k Kind) (bool, error) {
	tag, err := s.pool.Exec(ctx, `
		insert into `+s.runs+` as r (kind, started_at, deleted, complete) values ($1, now(), 0, false)
		on conflict (kind) do update set started_at = now(), deleted = 0, complete = false
			where r.started_at <= now() - $2::interval`, k.Name, every)
	if err != nil {
		return false, fmt.Errorf("begin a run: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

// A Report receives how many records of a kind a run deleted.
type Report func(kind string, deleted int64)

// RunOnce works on the kinds that no process has worked on within an hour. A failure of one does not stop the others.
func (s *Store) RunOnce(ctx context.Context, report Report, log *slog.Logger) error {
	var failures []error
	for _, k := range s.kinds {
		if k.Forever || ctx.Err() != nil {
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

// Run works until ctx ends. A failure is logged; the next run continues.
func (s *Store) Run(ctx context.Context, report Report, log *slog.Logger) {
	tick := time.NewTicker(lookEvery)
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
