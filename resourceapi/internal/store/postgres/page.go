package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
	"github.com/almonerhq/almoner/shared/rest"
)

// arguments are the arguments of a statement.
type arguments []any

// add adds an argument and returns its parameter.
func (a *arguments) add(value any) string {
	*a = append(*a, value)
	return "$" + strconv.Itoa(len(*a))
}

// pageSQL builds the statement from fixed pieces, so that each combination of filters is one text with one plan;
// values are always parameters. It fetches one row more than the page holds, to know whether more follow.
func pageSQL(query programme.Query) (string, []any) {
	if !query.Filter.UpdatedSince.IsZero() {
		return changedSQL(query)
	}
	args := arguments{query.WorkspaceID}
	text := "select " + programmeColumns + " from resource.programmes where tenant_id = $1" +
		programmeFilterSQL(query.Filter, &args)
	if query.After != nil {
		// A row comparison lets the index start at the position (the order is descending throughout).
		text += " and (created_at, id) < (" + args.add(query.After.CreatedAt) + ", " + args.add(query.After.ID) + ")"
	}
	rows := args.add(query.Limit + 1)
	if query.Filter.Search != "" {
		// a search is slow anyway and is planned better for its text
		return text + newestFirst + rows, args
	}
	return limitedSQL(text, rows), args
}

// programmeFilterSQL returns the conditions of a filter except UpdatedSince, each preceded by "and ".
func programmeFilterSQL(f programme.Filter, args *arguments) string {
	text := ""
	if f.Status != "" {
		text += " and status = " + args.add(string(f.Status))
	}
	if f.ExternalID != "" {
		text += " and external_id = " + args.add(f.ExternalID)
	}
	if f.Search != "" {
		pattern := folded(args.add("%" + likeLiteral.Replace(f.Search) + "%"))
		text += fmt.Sprintf(" and (%s like %s or %s like %s)", folded("name"), pattern, folded("summary"), pattern)
	}
	return text
}

const newestFirst = " order by created_at desc, id desc limit "

// limitedSQL adds the order and the limit of a list, a parameter, to its SELECT.
//
// Postgres uses one plan for all requests only if it does not expect a plan for one of them to be much better, and
// planning each request adds a quarter to the cost of a list. For a limit that is a parameter it estimates a tenth of
// the rows below, which may be a hundred thousand programmes. So the subquery has the longest page as a constant limit.
// The parameter limit is applied twice, since a tenth is still too much if one workspace has most of the programmes.
func limitedSQL(text, rows string) string {
	text += newestFirst + strconv.Itoa(rest.MaxLimit+1)
	for range 2 {
		text = "select * from (" + text + ") bounded" + newestFirst + rows
	}
	return text
}

// likeLiteral escapes the characters that are special in LIKE.
var likeLiteral = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

func scanPage(rows pgx.Rows, query programme.Query) (page programme.Page, err error) {
	take := func(p programme.Programme) bool {
		page.Programmes = append(page.Programmes, p)
		return true
	}
	if query.Into != nil {
		page.Sink = query.Into()
		take = page.Sink.Take
	}
	scan := scanProgramme
	if !query.Filter.UpdatedSince.IsZero() {
		scan = func(row pgx.CollectableRow) (programme.Programme, error) { return programmeOf(row, &page.Until) }
	}
	page.More, err = takeRows(rows, query.Limit, scan, take)
	if err != nil {
		return programme.Page{}, fmt.Errorf("read a page of programmes: %w", err)
	}
	return page, nil
}

// readRange adds the filter, the position and the limit to the SELECT of a list. whose are the parameters that select
// the list. readRange fetches one row more than the page holds, to know whether there is a next page.
func readRange[T any](
	ctx context.Context, pool *database, text, table string, whose arguments, r rest.Range, scan pgx.RowToFunc[T],
	take func(T) bool,
) (rest.End, error) {
	args := slices.Clone(whose)
	text += filterSQL(r.Filter, table+".", args.add)
	if r.After != nil {
		text += fmt.Sprintf(" and (%[1]s.created_at, %[1]s.id) < (%[2]s, %[3]s)",
			table, args.add(r.After.CreatedAt), args.add(r.After.ID))
	}
	text = limitedSQL(text, args.add(r.Limit+1))
	rows, _ := pool.Query(ctx, text, args...) // the rows have the error
	more, err := takeRows(rows, r.Limit, scan, take)
	return rest.End{More: more}, outcome(err)
}

// filterSQL returns the conditions of a filter except UpdatedSince, each preceded by "and ". prefix precedes the names
// of columns. The status is a constant in the text, so that PostgreSQL can use a partial index on it in a generic plan.
func filterSQL(f rest.Filter, prefix string, add func(any) string) string {
	text := ""
	if f.Status != "" {
		text += " and " + prefix + "status = " + quoteLiteral(f.Status)
	}
	if !f.CreatedSince.IsZero() {
		text += " and " + prefix + "created_at >= " + add(f.CreatedSince)
	}
	if !f.CreatedBefore.IsZero() {
		text += " and " + prefix + "created_at < " + add(f.CreatedBefore)
	}
	return text
}

// quoteLiteral returns text as an SQL literal. text must not contain a backslash.
func quoteLiteral(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// takeRows passes up to limit rows to take until it returns false. It reports whether more follow, and closes rows. A
// failure after the last row of the page is ignored.
func takeRows[T any](rows pgx.Rows, limit int, scan pgx.RowToFunc[T], take func(T) bool) (more bool, err error) {
	defer rows.Close()
	for taken := 0; rows.Next(); taken++ {
		if taken == limit {
			return true, nil
		}
		one, err := scan(rows)
		if err != nil {
			return false, err
		}
		if !take(one) {
			return true, nil
		}
	}
	return false, rows.Err()
}

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
	return strings.NewReplacer("{columns}", c.columns, "{table}", c.table, "{whose}", c.whose, "{changedAt}",
		c.changedAt, "{wasChanged}", c.wasChanged, "{further}", further, "{createdMonths}", c.createdMonths,
		"{changedMonths}", c.changedMonths, "{since}", c.since, "{limit}", c.limit).Replace(text)
}

// changedSQL is pageSQL for a list with UpdatedSince.
func changedSQL(query programme.Query) (string, []any) {
	args := arguments{query.WorkspaceID}
	c := changesSQL{
		table:      "resource.programmes",
		columns:    programmeColumns,
		whose:      "tenant_id = $1",
		changedAt:  "updated_at",
		wasChanged: "updated_at > created_at",
		updatedAt:  "updated_at",
		since:      args.add(query.Filter.UpdatedSince),
		limit:      args.add(query.Limit + 1),
	}
	c.filter = programmeFilterSQL(query.Filter, &args)
	if query.After != nil {
		c.after = args.add(query.After.CreatedAt) + ", " + args.add(query.After.ID)
		c.until = args.add(query.After.Until)
	}
	return c.String(), args
}
