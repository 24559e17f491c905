package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

// A changesSQL builds the statement of one page of the records that were created or changed since a time, in the order
// of the list: newest first. They are the records created since then, which the index of the list has, followed by
// older ones that were changed since, which the index of changes has; those are looked for only where the page is not
// full yet.
//
// Those are sorted by an expression, because the index of the list, which a small limit makes look cheap, would have to
// be read to its end where few records were changed.
//
// The last column is the newest time that the statement could read. It travels in the cursor, and what has a later one
// is left out of the pages that follow. Otherwise a record that was changed while a client went through the pages, at a
// place that the client had passed, would have an older time than the newest that the client has seen in the end.
type changesSQL struct {
	table, columns string
	whose          string // the condition that names the list, with a parameter
	changedAt      string // the column that says when a record was changed last
	wasChanged     string // of the records that are in the index of changes, its condition
	updatedAt      string // what callers see as updatedAt
	filter         string // further conditions, each with "and " before it
	since, limit   string // parameters
	after, until   string // parameters of the place behind which the page begins; "" on the first page
}

const changesText = `
with recent as materialized (
  select {columns} from {table}
  where {whose} and created_at >= {since}{further} order by created_at desc, id desc limit {limit}
)
select page.*, {newest} from (
  select * from recent
  union all
  (select {columns} from {table}
   where {whose} and {wasChanged} and {changedAt} >= {since} and created_at < {since}{further}
     and (select count(*) from recent) < {limit}
   order by created_at + interval '0' desc, id desc limit {limit})
) page order by created_at desc, id desc limit {limit}`

const newestText = `greatest(
  (select max(created_at) from {table} where {whose}),
  (select max({changedAt}) from {table} where {whose} and {wasChanged}))`

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

// changedSubmissions is Submissions for a range with UpdatedSince.
func (e *Engage) changedSubmissions(
	ctx context.Context,
	form uuid.UUID,
	r engage.Range,
	take func(engage.Submission) bool,
) (page engage.SubmissionPage, err error) {
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	c := changesSQL{
		table:      "resource.submissions",
		columns:    submissionColumns,
		whose:      "form_id = $1",
		changedAt:  "finished_at",
		wasChanged: "finished_at is not null",
		updatedAt:  "coalesce(finished_at, created_at)",
		since:      "$2",
		limit:      "$3",
	}
	args := []any{form, r.UpdatedSince, r.Limit + 1}
	if r.After != nil {
		c.after, c.until = "$4, $5", "$6"
		args = append(args, r.After.CreatedAt, r.After.ID, r.After.Until)
	}
	rows, err := e.pool.Query(ctx, c.String(), args...)
	if err != nil {
		return engage.SubmissionPage{}, outcome(err)
	}
	page.More, err = takeRows(rows, r.Limit, func(row pgx.CollectableRow) (engage.Submission, error) {
		return submissionOf(row, &page.Until)
	}, take)
	return page, outcome(err)
}
