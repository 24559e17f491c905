package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/resourceapi/internal/programme"
)

// Page reads one page of a workspace's programmes.
func (s *Store) Page(ctx context.Context, query programme.Query) (programme.Page, error) {
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	text, args := pageSQL(query)
	rows, err := s.pool.Query(ctx, text, args...)
	if err != nil {
		return programme.Page{}, outcome(err)
	}
	page, err := scanPage(rows, query.Limit)
	return page, outcome(err)
}

// pageSQL builds the statement from fixed pieces, so that each combination of filters is one text with one plan; values
// are parameters always. It asks for one row more than the page holds, to know whether more follow.
func pageSQL(query programme.Query) (string, []any) {
	args := []any{query.Tenant, query.Limit + 1}
	add := func(value any) string {
		args = append(args, value)
		return fmt.Sprintf("$%d", len(args))
	}
	var text strings.Builder
	text.WriteString("select " + programmeColumns + " from resource.programmes where tenant_id = $1")
	if query.Filter.Status != "" {
		text.WriteString(" and status = " + add(string(query.Filter.Status)))
	}
	if query.After != nil {
		// A comparison of rows, which the index answers from the very place (the order is descending throughout).
		text.WriteString(" and (created_at, id) < (" + add(query.After.CreatedAt) + ", " + add(query.After.ID) + ")")
	}
	if query.Filter.Search != "" {
		pattern := add("%" + likeLiteral.Replace(query.Filter.Search) + "%")
		fmt.Fprintf(&text, ` and (name ilike %[1]s collate resource.any_case or summary ilike %[1]s collate resource.any_case)`, pattern)
	}
	text.WriteString(" order by created_at desc, id desc limit $2")
	return text.String(), args
}

// likeLiteral makes the characters that LIKE gives a meaning to stand for themselves.
var likeLiteral = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

func scanPage(rows pgx.Rows, limit int) (programme.Page, error) {
	found, err := pgx.AppendRows(make([]programme.Programme, 0, limit+1), rows, scanProgramme)
	if err != nil {
		return programme.Page{}, fmt.Errorf("read a page of programmes: %w", err)
	}
	if len(found) > limit {
		return programme.Page{Programmes: found[:limit], More: true}, nil
	}
	return programme.Page{Programmes: found}, nil
}
