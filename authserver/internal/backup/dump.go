package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Folder is a folder of backups: dumps as almoner-TIME.dump with their roles as roles-TIME.sql, and one base backup
// as base. What is not complete has a name that ends in .part.
type Folder struct {
	Dir string
	Out io.Writer // gets a line for each thing that was done
}

const (
	part     = ".part"
	complete = "Complete."

	timeOfDump = "20060102T150405Z"
	anyDump    = "almoner-[0-9]*T[0-9]*Z.dump"

	// essential is in the table of contents of every dump of the database.
	essential = "TABLE DATA account grants "
)

var errNoDump = errors.New("there is no dump (almoner-TIME.dump)")

func (f Folder) path(name string) string { return filepath.Join(f.Dir, name) }

func (f Folder) say(format string, values ...any) {
	_, _ = fmt.Fprintf(f.Out, format+"\n", values...) // output is best effort
}

// DumpOptions are what differs between dumps.
type DumpOptions struct {
	NoRoles bool // do not write the server's roles, which only a superuser can read
	Later   bool // use programs of a later version than the server's, to restore the dump on a server of that version
}

// Dump writes and checks a dump of the database, and the server's roles with their password hashes.
func (f Folder) Dump(ctx context.Context, o DumpOptions) error {
	unlock, err := lock(f.Dir)
	if err == nil {
		defer unlock()
		err = f.dump(ctx, o)
	}
	if err != nil {
		return fmt.Errorf("no dump was made: %w\nEarlier dumps are unchanged", err)
	}
	f.say(complete)
	return nil
}

func (f Folder) dump(ctx context.Context, o DumpOptions) error {
	major, err := serverVersion(ctx, ownerService)
	if err != nil {
		return err
	}
	tools, err := find(ctx, major, choice(o.Later), "pg_dump", "pg_dumpall", "pg_restore")
	if err != nil {
		return err
	}
	name := "almoner-" + time.Now().UTC().Format(timeOfDump) + ".dump"
	made := []string{name}
	if !o.NoRoles {
		made = append(made, rolesOf(name))
	}
	for _, name := range made { // readable by their owner alone, whatever the umask is
		file, err := os.OpenFile(f.path(name+part), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer func() { _ = os.Remove(file.Name()) }() // it is not there after a success
		if err := file.Close(); err != nil {
			return err
		}
	}
	err = tools.do(ctx, "pg_dump", "--no-password", "--dbname="+ownerService, "--format=custom",
		"--file="+f.path(name+part))
	if err != nil {
		return err
	}
	if err := tools.checkDump(ctx, f.path(name+part)); err != nil {
		return err
	}
	if !o.NoRoles {
		err := tools.do(ctx, "pg_dumpall", "--no-password", "--dbname="+adminService, "--roles-only",
			"--file="+f.path(rolesOf(name)+part))
		if err != nil {
			return err
		}
	}
	for _, name := range slices.Backward(made) { // the dump last: a restore looks for it
		if err := f.keep(name); err != nil {
			return err
		}
		f.say("Wrote %s.", f.path(name))
	}
	return nil
}

// rolesOf returns the name of the file with the roles of a dump's server.
func rolesOf(dump string) string {
	return "roles-" + strings.TrimSuffix(strings.TrimPrefix(dump, "almoner-"), ".dump") + ".sql"
}

// keep gives a complete file its name, after it is on the disk.
func (f Folder) keep(name string) error {
	if err := sync(f.path(name + part)); err != nil {
		return err
	}
	if err := os.Rename(f.path(name+part), f.path(name)); err != nil {
		return err
	}
	return sync(f.Dir)
}

// checkDump reads all of a dump, and returns an error if it is cut off, damaged, or not of this database.
func (p programs) checkDump(ctx context.Context, file string) error {
	opened, err := os.Open(file)
	if err != nil {
		return explainPermission(err)
	}
	_ = opened.Close() // it was only opened for the error
	contents, err := run(ctx, p["pg_restore"], "--list", file)
	if err == nil && !strings.Contains(contents, essential) {
		err = errors.New("it has no grants")
	}
	if err == nil {
		err = p.do(ctx, "pg_restore", "--file="+os.DevNull, file)
	}
	if err != nil {
		return fmt.Errorf("%s is not a complete dump of this database: %w", filepath.Base(file), err)
	}
	return nil
}

// newest returns the name of the newest dump, or errNoDump.
func (f Folder) newest() (string, error) {
	found, err := filepath.Glob(f.path(anyDump))
	if err != nil || len(found) == 0 {
		return "", errors.Join(err, fmt.Errorf("%w in %s", errNoDump, f.Dir))
	}
	return filepath.Base(slices.Max(found)), nil
}

// VerifyDump checks the newest dump.
func (f Folder) VerifyDump(ctx context.Context) error {
	name, err := f.newest()
	if err != nil {
		return err
	}
	major, err := serverVersion(ctx, ownerService)
	if err != nil {
		return err
	}
	tools, err := find(ctx, major, laterVersion, "pg_restore")
	if err != nil {
		return err
	}
	if err := tools.checkDump(ctx, f.path(name)); err != nil {
		return err
	}
	f.say("%s is complete.", f.path(name))
	f.say(complete)
	return nil
}

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
