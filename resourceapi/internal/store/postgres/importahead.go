package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

// Thousands of programmes take seconds to insert, most of them for the index of searches, and who locks a list keeps it
// locked until the transaction ends: other writes of the workspace would be refused for as long. So a long import
// inserts its programmes first, with times that lie ahead of what the clock will show when they are there, and locks
// the list afterwards, for as long as the commit takes. Records of a list then still become visible in the order of
// their times (moments.go): with the list locked, the import looks whether a write was given a time as late as its own.
// That happens only if the import took longer than was reckoned with; it then begins again and reckons with more.
const (
	longImport = 500                    // programmes; fewer are inserted with the list locked
	firstPace  = 200 * time.Microsecond // for each programme, until an import took longer
	leadTime   = 500 * time.Millisecond // how long before its times an import may lock the list
	mostAhead  = 10 * time.Second       // which leaves workPatience enough
	triesAhead = 2                      // then it is inserted with the list locked, so that it comes to its end
)

// errOvertaken says that a write was given a time as late as those of the import.
var errOvertaken = errors.New("a write has overtaken the import")

// insertAhead adds all and locks the list afterwards. It returns errOvertaken.
func (s *Store) insertAhead(ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID, all []programme.Details) error {
	rows := time.Duration(len(all))
	while := min(max(firstPace, time.Duration(s.importPace.Load()))*rows, mostAhead)
	began := time.Now()
	first, err := timeAhead(ctx, tx, workspaceID, while+leadTime)
	if err != nil {
		return fmt.Errorf("choose the times of an import: %w", err)
	}
	if err := insertProgrammes(ctx, tx, workspaceID, all, first.Add((rows-1)*time.Microsecond)); err != nil {
		return err
	}
	took := time.Since(began)
	s.importPace.Store(int64(took * 5 / 4 / rows))
	if _, err := tx.Exec(ctx, "select pg_sleep($1)", max(0, while-took).Seconds()); err != nil {
		return fmt.Errorf("wait for the times of an import: %w", err)
	}
	if _, err := nextMoment(ctx, tx, workspaceID, 1); err != nil {
		return err
	}
	var overtaken bool
	err = tx.QueryRow(ctx, `
		select (select count(*) from resource.programmes where tenant_id = $1 and created_at >= $2) > $3
			or exists (select from resource.programmes where tenant_id = $1 and updated_at > created_at and updated_at >= $2)`,
		workspaceID, first, len(all)).Scan(&overtaken)
	if err == nil && overtaken {
		err = errOvertaken
	}
	return err
}

// timeAhead is a time that writes of the next while are not given. Where the newest time in the list is ahead of the
// clock, each write is given the microsecond that follows the one before.
func timeAhead(ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID, while time.Duration) (at time.Time, err error) {
	err = tx.QueryRow(ctx, `
		select greatest(clock_timestamp() + $2::interval, interval '100 ms' + greatest(
			(select max(created_at) from resource.programmes where tenant_id = $1),
			(select max(updated_at) from resource.programmes where tenant_id = $1 and updated_at > created_at)))`,
		workspaceID, while).Scan(&at)
	return at, err
}

// nextMoment locks the list of programmes and returns the time of the last of so many that are added.
func nextMoment(ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID, records int) (at time.Time, err error) {
	err = tx.QueryRow(ctx, "select resource.next_moment($1, $2, $3)", workspaceID, programmesList, records).Scan(&at)
	if err != nil {
		return time.Time{}, fmt.Errorf("lock the list of programmes: %w", err)
	}
	return at, nil
}
