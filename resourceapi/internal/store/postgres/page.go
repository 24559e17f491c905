package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/resourceapi/internal/list"
	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

// pageSQL builds the statement from fixed pieces, so that each combination of filters is one text with one plan;
// values are always parameters. It fetches one row more than the page holds, to know whether more follow.
func pageSQL(query programme.Query) (string, []any) {
	if !query.Filter.UpdatedSince.IsZero() {
		return changedSQL(query)
	}
	args := []any{query.WorkspaceID}
	add := func(value any) string {
		args = append(args, value)
		return fmt.Sprintf("$%d", len(args))
	}
	var text strings.Builder
	text.WriteString("select " + programmeColumns + " from resource.programmes where tenant_id = $1")
	if query.Filter.Status != "" {
		text.WriteString(" and status = " + add(string(query.Filter.Status)))
	}
	if query.Filter.ExternalID != "" {
		text.WriteString(" and external_id = " + add(query.Filter.ExternalID))
	}
	if query.After != nil {
		// A row comparison lets the index start at the position (the order is descending throughout).
		text.WriteString(" and (created_at, id) < (" + add(query.After.CreatedAt) + ", " + add(query.After.ID) + ")")
	}
	if query.Filter.Search != "" {
		text.WriteString(searchSQL(query.Filter.Search, add))
	}
	rows := add(query.Limit + 1)
	if query.Filter.Search != "" {
		// a search is slow anyway and is planned better for its text
		return text.String() + newestFirst + rows, args
	}
	return limitedSQL(text.String(), rows), args
}

const newestFirst = " order by created_at desc, id desc limit "

// limitedSQL adds the order and the limit of a list, a parameter, to its SELECT.
//
// Postgres uses one plan for all requests only if it does not expect a plan for one of them to be much better, and
// planning each request adds a quarter to the cost of a list. For a limit that is a parameter it estimates a tenth of
// the rows below, which may be a hundred thousand programmes. So the subquery has the longest page as a constant limit.
// The parameter limit is applied twice, since a tenth is still too much if one workspace has most of the programmes.
func limitedSQL(text, rows string) string {
	text += newestFirst + strconv.Itoa(list.MaxLimit+1)
	for range 2 {
		text = "select * from (" + text + ") bounded" + newestFirst + rows
	}
	return text
}

// searchSQL returns the condition of a search.
func searchSQL(search string, add func(any) string) string {
	pattern := folded(add("%" + likeLiteral.Replace(search) + "%"))
	return fmt.Sprintf(" and (%s like %s or %s like %s)", folded("name"), pattern, folded("summary"), pattern)
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
		scan = scanChanged(&page.Until)
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
	ctx context.Context,
	pool *database,
	text, table string,
	whose []any,
	r list.Range,
	scan pgx.RowToFunc[T],
	take func(T) bool,
) (list.End, error) {
	ctx, cancel := pool.bounded(ctx)
	defer cancel()
	args := slices.Clone(whose)
	add := func(value any) string {
		args = append(args, value)
		return fmt.Sprintf("$%d", len(args))
	}
	text += filterSQL(r.Filter, table+".", add)
	if r.After != nil {
		text += fmt.Sprintf(" and (%[1]s.created_at, %[1]s.id) < (%[2]s, %[3]s)",
			table, add(r.After.CreatedAt), add(r.After.ID))
	}
	rows, err := pool.Query(ctx, limitedSQL(text, add(r.Limit+1)), args...)
	if err != nil {
		return list.End{}, outcome(err)
	}
	more, err := takeRows(rows, r.Limit, scan, take)
	return list.End{More: more}, outcome(err)
}

// filterSQL returns the conditions of a filter except UpdatedSince, each preceded by "and ". prefix precedes the names
// of columns. The status is a constant in the text, so that PostgreSQL can use a partial index on it in a generic plan.
func filterSQL(f list.Filter, prefix string, add func(any) string) string {
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
