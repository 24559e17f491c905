package migrate

import (
	"context"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// An Asker queries the database as the service itself, which may read the table of versions.
type Asker interface {
	Query(ctx context.Context, sql string, arguments ...any) (pgx.Rows, error)
}

// Missing returns the names of the migrations that the database lacks. A newer database lacks none: the
// previous program can run on it.
func (m Migrations) Missing(ctx context.Context, database Asker) ([]string, error) {
	known, err := m.known()
	if err != nil {
		return nil, err
	}
	rows, err := database.Query(
		ctx,
		"select version_id from "+pgx.Identifier{m.Table}.Sanitize()+" where is_applied and version_id > 0",
	)
	if err != nil {
		return nil, err
	}
	applied, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, err
	}
	return Compare(known, applied).Missing, nil
}

// known returns the migrations by their file names: NNNNN_name.sql.
func (m Migrations) known() ([]Version, error) {
	names, err := fs.Glob(m.Files, "*.sql")
	if err != nil {
		return nil, err
	}
	var all []Version
	for _, name := range names {
		digits, _, _ := strings.Cut(name, "_")
		number, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the migration %s has no number", name)
		}
		all = append(all, Version{number, name})
	}
	return all, nil
}
