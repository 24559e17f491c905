package postgres

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/contract/openapi"
	"github.com/almonerhq/almoner/shared/contract/usage"
)

// UsageCounter returns a counter of requests. The caller must close it before the Store.
func (s *Store) UsageCounter(log *slog.Logger) (*usage.Counter, error) {
	return usage.NewCounter(s.pool.Pool, openapi.Resourceapi, time.Now, log)
}

// Usage returns up to limit rows of one credential, the latest day first: those after a row, or the first ones after
// the zero Row. Those of introspections by several services are added up.
func (s *Store) Usage(
	ctx context.Context, workspaceID, credentialID uuid.UUID, days usage.Days, after usage.Row, limit int,
) ([]usage.Row, error) {
	scan := func(row pgx.CollectableRow) (found usage.Row, err error) {
		err = row.Scan(&found.Day, &found.Operation, &found.Requests, &found.Refused, &found.Records)
		return found, err
	}
	if after.Operation == "" { // from the latest row
		after.Day = days.To.AddDate(0, 0, 1)
	}
	found, err := allRows(ctx, s.pool, scan, `
		select day, operation, sum(requests)::bigint, sum(refused)::bigint, sum(records)::bigint from account.usage
		where tenant_id = $1 and credential_id = $2 and day between $3 and $4 and (day, operation) < ($5, $6)
		group by day, operation order by day desc, operation desc limit $7`,
		workspaceID, credentialID, days.From, days.To, after.Day, after.Operation, limit)
	return found, outcome(err)
}

// countImport counts the records of an import for the credential that sent it, whose request has been counted
// (contract, section 5b). It is last, because it locks a row that other processes need. An import that the previous
// release accepted has no credential.
func (t *transaction) countImport(taken waitingImport, records int) {
	if t.err != nil || taken.credential == nil {
		return
	}
	row := usage.Row{
		WorkspaceID:  taken.workspaceID,
		CredentialID: *taken.credential,
		Operation:    "importProgrammes",
		Kind:         taken.kind,
		UserID:       taken.user,
		Counts:       usage.Counts{Records: int64(records)},
	}
	t.row("read the time of an import", "select now()").read(&row.Day)
	row.Day = usage.Day(row.Day)
	if t.err == nil {
		t.fail("", usage.Add(t.ctx, t, []usage.Row{row}))
	}
}
