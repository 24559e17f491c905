package backup

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ofRole matches the statements of pg_dumpall that make a role or set its attributes.
var ofRole = regexp.MustCompile(`^(CREATE|ALTER) ROLE ("(?:[^"]|"")*"|[^ ;]+)[ ;]`)

// silent keeps the statements that follow it out of the server's log.
const silent = `set log_statement = none; set log_min_error_statement = panic; set log_min_duration_statement = -1;
set log_min_duration_sample = -1; set log_transaction_sample_rate = 0; set log_duration = off`

// restoreRoles makes the roles of a file, all or none. Those that are there get the file's passwords and attributes,
// except the superuser of the connection. The file has password hashes, which must not get into the server's log.
func (f Folder) restoreRoles(ctx context.Context, db *pgx.Conn, name string) error {
	content, err := os.ReadFile(f.path(name))
	if err != nil {
		return fmt.Errorf("there is no file with the roles of the dump: %w", err)
	}
	rows, err := db.Query(ctx, "select rolname from pg_roles")
	if err != nil {
		return err
	}
	there, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	var own string
	if err := db.QueryRow(ctx, "select current_user").Scan(&own); err != nil {
		return err
	}
	if _, err := db.Exec(ctx, silent, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	var statements strings.Builder
	for line := range strings.Lines(string(content)) {
		if found := ofRole.FindStringSubmatch(line); found != nil {
			role := strings.ReplaceAll(strings.Trim(found[2], `"`), `""`, `"`)
			if role == own || (found[1] == "CREATE" && slices.Contains(there, role)) {
				continue
			}
		}
		if !strings.HasPrefix(line, `\`) { // a command of psql
			statements.WriteString(line)
		}
	}
	if err := db.PgConn().Exec(ctx, statements.String()).Close(); err != nil {
		return fmt.Errorf("make the roles of %s: %w", name, err)
	}
	return nil
}
