package postgres

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

// A changesSQL builds the statement for one page of the records that were created or changed since a time, in list
// order: newest first. It reads the records created since then from the list index and, only if the page is not full
// yet, older records changed since then from the change index.
//
// The older records are sorted by an expression. Otherwise a small limit makes the list index look cheap, and if few
// records were changed, the index would be read to its end.
//
// The last column is the newest time that the statement could read. It is stored in the cursor, and records with a
// later time are left out of the following pages. Otherwise a client could miss a record: one that is changed while
// the client reads the pages, at a position that it has passed, would have an older time than the newest time that
// the client sees.
type changesSQL struct {
	table, columns string
	whose          string // condition that selects the list, with parameters
	changedAt      string // column with the time of the last change
	wasChanged     string // condition of the records in the change index
	updatedAt      string // expression of updatedAt as callers see it
	filter         string // further conditions, each preceded by "and "
	// conditions for the months of records that were created, and changed, since the time; each preceded by "and "
	createdMonths, changedMonths string
	since, limit                 string // parameters
	after, until                 string // parameters of the position before the page; empty for the first page
}

const changesText = `
with recent as materialized (
  select {columns} from {table}
  where {whose} and created_at >= {since}{createdMonths}{further} order by created_at desc, id desc limit {limit}
)
select page.*, {newest} from (
  select * from recent
  union all
  (select {columns} from {table}
   where {whose} and {wasChanged} and {changedAt} >= {since} and created_at < {since}{changedMonths}{further}
     and (select count(*) from recent) < {limit}
   order by created_at + interval '0' desc, id desc limit {limit})
) page order by created_at desc, id desc limit {limit}`

const newestText = `greatest(
  (select max(created_at) from {table} where {whose}{createdMonths}),
  (select max({changedAt}) from {table} where {whose} and {wasChanged}{changedMonths}))`

func (c changesSQL) String() string {
	further, newest := c.filter, newestText
	if c.after != "" {
		further += " and (created_at, id) < (" + c.after + ") and " + c.updatedAt + " <= " + c.until
		newest = c.until + "::timestamptz"
	}
	text := strings.Replace(changesText, "{newest}", newest, 1)
	return strings.NewReplacer(
		"{columns}", c.columns,
		"{table}", c.table,
		"{whose}", c.whose,
		"{changedAt}", c.changedAt,
		"{wasChanged}", c.wasChanged,
		"{further}", further,
		"{createdMonths}", c.createdMonths,
		"{changedMonths}", c.changedMonths,
		"{since}", c.since,
		"{limit}", c.limit,
	).Replace(text)
}

// changedSQL is pageSQL for a list with UpdatedSince. scanChanged reads its rows.
func changedSQL(query programme.Query) (string, []any) {
	args := []any{query.WorkspaceID}
	add := func(value any) string {
		args = append(args, value)
		return fmt.Sprintf("$%d", len(args))
	}
	c := changesSQL{
		table:      "resource.programmes",
		columns:    programmeColumns,
		whose:      "tenant_id = $1",
		changedAt:  "updated_at",
		wasChanged: "updated_at > created_at",
		updatedAt:  "updated_at",
		since:      add(query.Filter.UpdatedSince),
		limit:      add(query.Limit + 1),
	}
	if query.Filter.Status != "" {
		c.filter += " and status = " + add(string(query.Filter.Status))
	}
	if query.Filter.ExternalID != "" {
		c.filter += " and external_id = " + add(query.Filter.ExternalID)
	}
	if query.Filter.Search != "" {
		c.filter += searchSQL(query.Filter.Search, add)
	}
	if query.After != nil {
		c.after = add(query.After.CreatedAt) + ", " + add(query.After.ID)
		c.until = add(query.After.Until)
	}
	return c.String(), args
}

func scanChanged(until *time.Time) pgx.RowToFunc[programme.Programme] {
	return func(row pgx.CollectableRow) (programme.Programme, error) { return programmeOf(row, until) }
}
