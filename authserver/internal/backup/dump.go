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

// Suffixes of the name of the database: one while it is being restored, one for the database that it replaces.
const (
	unfinished = "_restored"
	replaced   = "_before"
)

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
	tools, err := findFor(ctx, ownerService, choice(o.Later), "pg_dump", "pg_dumpall", "pg_restore")
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
	tools, err := findFor(ctx, ownerService, laterVersion, "pg_restore")
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
	var there []string
	var own string
	err = db.QueryRow(ctx, "select array_agg(rolname::text), current_user from pg_roles").Scan(&there, &own)
	if err != nil {
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

// Restore restores a dump of the folder, or the newest one if name is empty, as the database of the service almoner.
// The database that has this name is renamed when the restored one is complete. With roles, for a new server, it first
// makes the roles of the dump's server, with their passwords.
func (f Folder) Restore(ctx context.Context, name string, roles bool) error {
	if err := f.restore(ctx, name, roles); errors.Is(err, errUnknownOutcome) {
		return err
	} else if err != nil {
		return fmt.Errorf("nothing was restored, and the database is as it was: %w", err)
	}
	f.say("Complete. Continue with after-restore.md before you start the services.")
	return nil
}

func (f Folder) restore(ctx context.Context, name string, roles bool) (err error) {
	if name == "" {
		if name, err = f.newest(); err != nil {
			return err
		}
	}
	target, err := pgx.ParseConfig(ownerService)
	if err != nil {
		return fmt.Errorf("read the service almoner (pg_service.conf): %w", err)
	}
	r := restoration{target.Database, target.User}
	db, major, err := connect(ctx, adminService)
	if err != nil {
		return err
	}
	defer func() { disconnect(db) }()
	tools, err := find(ctx, major, sameVersion, "pg_restore")
	if err != nil {
		return err
	}
	if err := tools.checkDump(ctx, f.path(name)); err != nil {
		return err
	}
	f.say("%s is complete.", f.path(name))
	replaces, err := r.check(ctx, db)
	if err != nil {
		return err
	}
	if roles {
		if replaces {
			return fmt.Errorf("the server has a database %s: --roles is for a new server", r.name)
		}
		if err := f.restoreRoles(ctx, db, rolesOf(name)); err != nil {
			return err
		}
		f.say("Made the roles of %s.", f.path(rolesOf(name)))
		defer func() {
			if err != nil {
				err = fmt.Errorf("only the roles were made: %w", err)
			}
		}()
	}
	if err := r.create(ctx, db); err != nil {
		return errors.Join(err, r.drop())
	}
	users, err := r.fill(ctx, tools, f.path(name))
	if err != nil {
		return errors.Join(err, r.drop())
	}
	// Once it has begun, an interrupt does not stop it, so that its outcome is known.
	if err := r.swap(context.WithoutCancel(ctx), replaces); err != nil {
		return r.afterSwap(err)
	}
	if replaces {
		f.say("Renamed the database %s to %s.", r.name, r.name+replaced)
	}
	f.say("Restored %s: %d users.", f.path(name), users)
	return nil
}

// A restoration restores the database of an owner.
type restoration struct{ name, owner string }

func identifier(name string) string { return pgx.Identifier{name}.Sanitize() }

// restored selects the database that is being restored.
func (r restoration) restored() string { return ownerService + " dbname=" + r.name + unfinished }

// check reports whether there is a database to replace. It returns an error if services use it, or if the database of
// an earlier restore has its later name.
func (r restoration) check(ctx context.Context, db *pgx.Conn) (replaces bool, err error) {
	var earlier bool
	var connected int
	err = db.QueryRow(ctx, `
select exists (select from pg_database where datname = $1), exists (select from pg_database where datname = $2),
  (select count(*) from pg_stat_activity where datname = $1 and application_name like 'almoner-%')`,
		r.name, r.name+replaced).Scan(&replaces, &earlier, &connected)
	switch {
	case err != nil:
		return false, err
	case connected > 0:
		return false, fmt.Errorf("the services have %d connections to the database: stop them first", connected)
	case replaces && earlier:
		return false, fmt.Errorf("there is a database %s, which an earlier restore has replaced: rename it, or drop "+
			"it if it is certainly no longer needed", r.name+replaced)
	}
	return replaces, nil
}

// create makes an empty database, to which only its owner and the services can connect. It first drops what an
// interrupted restore left.
func (r restoration) create(ctx context.Context, db *pgx.Conn) error {
	name := identifier(r.name + unfinished)
	for _, sql := range []string{
		"drop database if exists " + name + " with (force)",
		"create database " + name + " owner " + identifier(r.owner),
		"revoke all on database " + name + " from public",
		"grant connect on database " + name + " to almoner_authserver, almoner_resourceapi",
	} {
		if _, err := db.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// fill restores a dump into the empty database and returns the number of users.
func (r restoration) fill(ctx context.Context, tools programs, file string) (users int, err error) {
	err = tools.do(ctx, "pg_restore", "--no-password", "--dbname="+r.restored(), "--single-transaction",
		"--exit-on-error", file)
	if err != nil {
		return 0, err
	}
	db, _, err := connect(ctx, r.restored())
	if err != nil {
		return 0, err
	}
	defer func() { disconnect(db) }()
	if _, err := db.Exec(ctx, "analyze"); err != nil {
		return 0, err
	}
	err = db.QueryRow(ctx, "select count(*) from account.users").Scan(&users)
	return users, err
}

// errUnknownOutcome reports that the databases may or may not have been renamed.
var errUnknownOutcome = errors.New("it is not known whether the restored database is in place: list the databases. " +
	"If one ends in " + unfinished + ", nothing was restored")

// afterSwap returns the error of a failed swap: errUnknownOutcome if the connection was lost and the databases were
// renamed all the same, or if that is not known.
func (r restoration) afterSwap(failed error) error {
	db, _, err := connect(context.Background(), adminService)
	if err != nil {
		return errors.Join(errUnknownOutcome, failed, err)
	}
	defer func() { disconnect(db) }()
	var left bool
	err = db.QueryRow(context.Background(), "select exists (select from pg_database where datname = $1)",
		r.name+unfinished).Scan(&left)
	if err != nil || !left {
		return errors.Join(errUnknownOutcome, failed, err)
	}
	return errors.Join(failed, r.drop())
}

// swap renames the current database and the restored one in one transaction. It opens a new connection, because a
// restore can take hours.
func (r restoration) swap(ctx context.Context, replaces bool) error {
	db, _, err := connect(ctx, adminService)
	if err != nil {
		return err
	}
	defer func() { disconnect(db) }()
	if _, err := r.check(ctx, db); err != nil {
		return err
	}
	const end = "select pg_terminate_backend(pid) from pg_stat_activity where datname = any ($1)"
	if _, err := db.Exec(ctx, end, []string{r.name, r.name + unfinished}); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		const rename = "alter database %s rename to %s"
		if replaces {
			_, err := tx.Exec(ctx, fmt.Sprintf(rename, identifier(r.name), identifier(r.name+replaced)))
			if err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, fmt.Sprintf(rename, identifier(r.name+unfinished), identifier(r.name)))
		return err
	})
}

// drop drops the database that was not restored. The next restore does it if this one cannot.
func (r restoration) drop() error {
	ctx := context.Background() // the restore may have been interrupted
	db, _, err := connect(ctx, adminService)
	if err != nil {
		return err
	}
	defer func() { disconnect(db) }()
	_, err = db.Exec(ctx, "drop database if exists "+identifier(r.name+unfinished)+" with (force)")
	return err
}
