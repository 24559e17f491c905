package migrate

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A Version is the number and the name of a migration.
type Version struct {
	Number int64
	Name   string
}

// A State is how a database differs from what a program needs.
type State struct {
	Missing []string // migrations that the program has and the database has not
	Newer   []int64  // numbers of migrations that the database has and the program does not know
}

// Compare compares what a program knows, in order, with what a database has. Numbers below the first known one are of
// migrations that it replaces.
func Compare(known []Version, applied []int64) State {
	var s State
	for _, version := range known {
		if !slices.Contains(applied, version.Number) {
			s.Missing = append(s.Missing, version.Name)
		}
	}
	for _, number := range applied {
		replaced := len(known) > 0 && number < known[0].Number
		if !replaced && !slices.ContainsFunc(known, func(v Version) bool { return v.Number == number }) {
			s.Newer = append(s.Newer, number)
		}
	}
	return s
}

// Add combines the states of two sets of migrations.
func (s State) Add(other State) State {
	return State{slices.Concat(s.Missing, other.Missing), slices.Concat(s.Newer, other.Newer)}
}

// Exit statuses of `migrate --check`. 0 is up to date; 1 and 2 are other failures.
const (
	StatusMissing = 3
	StatusNewer   = 4
)

// A Difference is the error of a schema that differs from what the program needs.
type Difference struct{ State }

func (d Difference) Error() string {
	if len(d.Missing) > 0 {
		return fmt.Sprintf("migrations are missing: %s; run migrate", strings.Join(d.Missing, ", "))
	}
	return "the database is newer than this program: it has the unknown migrations " +
		strings.Trim(fmt.Sprint(d.Newer), "[]")
}

// ExitStatus returns the exit status for scripts.
func (d Difference) ExitStatus() int {
	if len(d.Missing) > 0 {
		return StatusMissing
	}
	return StatusNewer
}

// Err returns nil if nothing differs, or a Difference.
func (s State) Err() error {
	if len(s.Missing)+len(s.Newer) == 0 {
		return nil
	}
	return Difference{s}
}

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
	applied, err := m.applied(ctx, database)
	if err != nil {
		return nil, err
	}
	return Compare(known, applied).Missing, nil
}

// applied returns the numbers of the migrations that the database has.
func (m Migrations) applied(ctx context.Context, database Asker) ([]int64, error) {
	table := pgx.Identifier{m.Table}.Sanitize()
	rows, _ := database.Query(ctx,
		"select version_id from "+table+" where is_applied and version_id > 0 order by version_id")
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// known returns the migrations by their file names: NNNNN_name.sql.
func (m Migrations) known() ([]Version, error) {
	files, err := fs.Glob(m.Files, path.Join(m.Folder, "*.sql"))
	if err != nil {
		return nil, err
	}
	var all []Version
	for _, file := range files {
		name := path.Base(file)
		digits, _, _ := strings.Cut(name, "_")
		number, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the migration %s has no number", name)
		}
		all = append(all, Version{number, name})
	}
	return all, nil
}
