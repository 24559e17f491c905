// Package backup makes, checks and restores backups of the database with PostgreSQL's own programs. It is for operators
// (deploy/runbooks).
//
// It connects to the libpq services almoner, as the owner of the database, and almoner_admin, as a superuser. A
// backup or database is replaced only after the new one has been verified. A function that fails leaves everything as
// it was, unless its error says otherwise, and its error says what to do.
package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// The libpq services of deploy/runbooks/README.md.
const (
	ownerService = "service=almoner"
	adminService = "service=almoner_admin"
)

// programs are the paths of PostgreSQL's programs, by name.
type programs map[string]string

// A choice says which versions of a program can be used.
type choice bool

const (
	sameVersion  choice = false
	laterVersion choice = true // the server's or a later one
)

// versions are where Debian's packages install the programs of each major version.
const versions = "/usr/lib/postgresql"

var printedVersion = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// find finds programs of a major version: in PATH, or where Debian's packages install them.
func find(ctx context.Context, major int, which choice, names ...string) (programs, error) {
	found := programs{}
	for _, name := range names {
		has := 0
		for _, path := range []string{name, filepath.Join(versions, strconv.Itoa(major), "bin", name)} {
			out, err := run(ctx, path, "--version")
			version := printedVersion.FindStringSubmatch(out)
			if err != nil || version == nil {
				continue
			}
			has, _ = strconv.Atoi(version[1]) // digits, by the pattern
			if has == major || (which == laterVersion && has > major) {
				found[name] = path
				break
			}
		}
		switch {
		case found[name] != "":
		case has > 0:
			return nil, fmt.Errorf("found %s of PostgreSQL %d, but PostgreSQL %d is needed: install "+
				"postgresql-client-%d or postgresql-%d", name, has, major, major, major)
		default:
			return nil, fmt.Errorf("%s is not installed: install postgresql-client-%d or postgresql-%d",
				name, major, major)
		}
	}
	return found, nil
}

func (p programs) do(ctx context.Context, name string, arguments ...string) error {
	_, err := run(ctx, p[name], arguments...)
	return err
}

// run runs a program and returns what it prints. The error contains what it says about its failure.
func run(ctx context.Context, path string, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, path, arguments...)
	var out, complaint bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaint
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", filepath.Base(path), err, withoutData(complaint.String()))
	}
	return out.String(), nil
}

// longestComplaint is how many of the last lines of what a program says are in an error.
const longestComplaint = 20

// withoutData returns the last lines of what a program says, without those that quote rows or statements.
func withoutData(said string) string {
	var kept []string
	for line := range strings.Lines(said) {
		quotes := strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "Command was:")
		for _, kind := range []string{"DETAIL:", "CONTEXT:", "STATEMENT:", "QUERY:", "LINE "} {
			quotes = quotes || strings.Contains(line, kind)
		}
		if !quotes {
			kept = append(kept, strings.TrimRight(line, "\n"))
		}
	}
	return strings.Join(kept[max(0, len(kept)-longestComplaint):], "\n")
}

// connect connects to a libpq service and returns the major version of its server.
func connect(ctx context.Context, service string) (db *pgx.Conn, major int, err error) {
	db, err = pgx.Connect(ctx, service)
	if err != nil {
		return nil, 0, fmt.Errorf("connect to %s (pg_service.conf): %w", service, err)
	}
	var number int
	err = db.QueryRow(ctx, "select current_setting('server_version_num')::int").Scan(&number)
	if err != nil {
		disconnect(db)
		return nil, 0, fmt.Errorf("read the version of the server: %w", err)
	}
	return db, number / 10_000, nil
}

func disconnect(db *pgx.Conn) { _ = db.Close(context.Background()) } // nothing is left to do if it fails

// findFor finds programs of the version of a libpq service's server.
func findFor(ctx context.Context, service string, which choice, names ...string) (programs, error) {
	db, major, err := connect(ctx, service)
	if err != nil {
		return nil, err
	}
	disconnect(db)
	return find(ctx, major, which, names...)
}

// lock makes sure that no other process works in a folder, until unlock is called.
func lock(dir string) (unlock func(), err error) {
	folder, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another command uses %s: wait until it ends", dir), folder.Close())
	}
	return func() { _ = folder.Close() }, nil
}

// sync waits until a file or a folder is on the disk.
func sync(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// explainPermission adds advice to the error of a file that belongs to another user.
func explainPermission(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: run this as the user who owns it", err)
	}
	return err
}
