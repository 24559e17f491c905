package backup

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Suffixes of the name of the database: one while it is being restored, one for the database that it replaces.
const (
	unfinished = "_restored"
	replaced   = "_before"
)

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
