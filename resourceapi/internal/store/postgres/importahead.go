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

// Inserting thousands of programmes takes seconds, mostly for the search index, and a locked list stays locked until
// the transaction ends: other writes of the workspace would be refused meanwhile. So a long import first inserts its
// programmes with times ahead of the expected end of the insertion, and locks the list afterwards, only for the
// commit. To make records still become visible in the order of their times (moments.go), the import checks, with the
// list locked, whether a write got a time as late as its own. That happens only if the import took longer than
// estimated; it then starts again with a larger estimate.
const (
	longImport = 500                    // programmes; shorter imports are inserted with the list locked
	firstPace  = 200 * time.Microsecond // estimate for each programme, until an import took longer
	leadTime   = 500 * time.Millisecond // how long before its times an import may lock the list
	maxAhead   = 10 * time.Second       // leaves enough of workTimeout
	triesAhead = 2                      // then it is inserted with the list locked, so that it completes
)

// errOvertaken means that a write got a time as late as those of the import.
var errOvertaken = errors.New("a write has overtaken the import")

// insertAhead adds all and locks the list afterwards. It returns errOvertaken.
func (s *Store) insertAhead(ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID, all []programme.Details) error {
	rows := time.Duration(len(all))
	while := min(max(firstPace, time.Duration(s.importPace.Load()))*rows, maxAhead)
	first, err := timeAhead(ctx, tx, workspaceID, while+leadTime)
	if err != nil {
		return fmt.Errorf("choose the times of an import: %w", err)
	}
	began := time.Now() // not earlier, so that the list is not locked more than leadTime before first
	if err := insertProgrammes(ctx, tx, workspaceID, all, first.Add((rows-1)*time.Microsecond)); err != nil {
		return err
	}
	took := time.Since(began)
	s.importPace.Store(int64(took * 5 / 4 / rows))
	if _, err := tx.Exec(ctx, "select pg_sleep($1)", max(0, while-took).Seconds()); err != nil {
		return fmt.Errorf("wait for the times of an import: %w", err)
	}
	if _, err := nextMoment(ctx, tx, workspaceID, programmesList, 1); err != nil {
		return err
	}
	var overtaken bool
	err = tx.QueryRow(ctx, `
		select (select count(*) from resource.programmes where tenant_id = $1 and created_at >= $2) > $3
			or exists (select from resource.programmes
				where tenant_id = $1 and updated_at > created_at and updated_at >= $2)`,
		workspaceID, first, len(all)).Scan(&overtaken)
	if err == nil && overtaken {
		err = errOvertaken
	}
	return err
}

// timeAhead returns a time later than any that writes get during while. If the newest time in the list is ahead of
// the clock, each write gets the microsecond after the previous one.
func timeAhead(ctx context.Context, tx pgx.Tx, workspaceID uuid.UUID, while time.Duration) (at time.Time, err error) {
	err = tx.QueryRow(ctx, `
		select greatest(clock_timestamp() + $2::interval, interval '100 ms' + greatest(
			(select max(created_at) from resource.programmes where tenant_id = $1),
			(select max(updated_at) from resource.programmes where tenant_id = $1 and updated_at > created_at)))`,
		workspaceID, while).Scan(&at)
	return at, err
}
