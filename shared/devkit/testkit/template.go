package testkit

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // goose speaks database/sql
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

const (
	ownerRole       = "test_owner"
	authserverRole  = "test_authserver"
	resourceapiRole = "test_resourceapi"

	templatePrefix = "almoner_template_"
	databasePrefix = "test_"

	templateLock = 0x616c6d6f6e6572 // "almoner"; any number that all test processes agree on
)

// template is a migrated database that the tests' databases are copied from.
type template struct {
	server   string        // the superuser's URL
	pool     *pgxpool.Pool // of the superuser; connecting takes as long as what is done with the connection
	name     string
	password string // of the three roles
	contents contents
	root     string // of the repository
}

// services returns the services whose migrations a template has.
func services() []string { return []string{"authserver", "resourceapi"} }

func (t template) url(role, database string) string {
	parsed, err := url.Parse(InDatabase(t.server, database))
	if err != nil {
		return ""
	}
	parsed.User = url.UserPassword(role, t.password)
	return parsed.String()
}

// database returns the URLs of a database that is a copy.
func (t template) database(name string) Database {
	return Database{
		Owner:       t.url(ownerRole, name),
		Authserver:  t.url(authserverRole, name),
		Resourceapi: t.url(resourceapiRole, name),
		Superuser:   InDatabase(t.server, name),
	}
}

// ensureTemplate makes the template unless another process has made it for the same migrations. Its name
// contains their hash, so that a changed migration results in a new template.
func ensureTemplate(ctx context.Context, server string) (template, error) {
	root, err := localstore.RepositoryRoot()
	if err != nil {
		return template{}, err
	}
	hash := sha256.New()
	_, _ = fmt.Fprintf(hash, "distributed: %t\n", distributes()) // never fails
	for _, service := range services() {
		if err := hashMigrations(hash, migrations(root, service)); err != nil {
			return template{}, err
		}
	}
	secret := sha256.Sum256([]byte("test roles of " + server)) // the same in every process; as secret as the URL
	pool, err := pgxpool.New(ctx, server)
	if err != nil {
		return template{}, fmt.Errorf("connect to the test server: %w", err)
	}
	t := template{
		server:   server,
		pool:     pool,
		name:     templatePrefix + hex.EncodeToString(hash.Sum(nil)[:6]),
		password: hex.EncodeToString(secret[:16]),
		root:     root,
	}
	return t.ensure(ctx, func(superuser *pgx.Conn) error { return t.build(ctx, superuser) })
}

// ensure builds the template unless it is finished, and reads its contents.
func (t template) ensure(ctx context.Context, build func(superuser *pgx.Conn) error) (template, error) {
	connection, err := pgx.Connect(ctx, t.server)
	if err != nil {
		return template{}, fmt.Errorf("connect to the test server: %w", err)
	}
	defer func() { _ = connection.Close(context.WithoutCancel(ctx)) }() // which also releases the lock
	if _, err := connection.Exec(ctx, "select pg_advisory_lock($1)", int64(templateLock)); err != nil {
		return template{}, err
	}
	t.contents, err = t.readContents(ctx, connection)
	if errors.Is(err, pgx.ErrNoRows) {
		if err := build(connection); err != nil {
			return template{}, err
		}
		t.contents, err = t.readContents(ctx, connection)
	}
	return t, err
}

// finish stores the contents of the database, runs the statements, and makes the database a template.
func (t template) finish(ctx context.Context, superuser *pgx.Conn, statements ...string) error {
	if err := t.storeContents(ctx, superuser); err != nil {
		return fmt.Errorf("make the template database: %w", err)
	}
	final := "alter database " + t.sanitized() + " with is_template true allow_connections false"
	return execute(ctx, superuser, append(statements, final)...)
}

// execute runs statements one after the other.
func execute(ctx context.Context, superuser *pgx.Conn, statements ...string) error {
	for _, statement := range statements {
		if _, err := superuser.Exec(ctx, statement); err != nil {
			return fmt.Errorf("make the template database: %w", err)
		}
	}
	return nil
}

func (t template) sanitized() string { return pgx.Identifier{t.name}.Sanitize() }

func (t template) build(ctx context.Context, superuser *pgx.Conn) error {
	err := execute(ctx, superuser,
		ensureRole(ownerRole, t.password, "createrole"),
		"drop database if exists "+t.sanitized()+" with (force)",
		"create database "+t.sanitized()+" owner "+ownerRole)
	if err != nil {
		return err
	}
	for _, service := range services() {
		if err := migrate(ctx, t.url(ownerRole, t.name), service, migrations(t.root, service)); err != nil {
			return err
		}
	}
	if distributes() {
		if err := t.distribute(ctx); err != nil {
			return err
		}
	}
	statements := []string{
		ensureRole(authserverRole, t.password, ""), "grant almoner_authserver to " + authserverRole,
		ensureRole(resourceapiRole, t.password, ""), "grant almoner_resourceapi to " + resourceapiRole,
	}
	if distributes() { // a background process of Citus is connected, and would prevent copies
		statements = append(statements,
			"select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = '"+t.name+"'")
	}
	return t.finish(ctx, superuser, statements...)
}

// ensureRole returns SQL without parameters, because a utility statement accepts none. Both texts are
// constants of this package.
func ensureRole(name, password, options string) string {
	return fmt.Sprintf(`do $$ begin
		if not exists (select from pg_roles where rolname = '%[1]s') then create role %[1]s; end if;
		alter role %[1]s login %[3]s password '%[2]s';
	end $$`, name, password, options)
}

// migrate records the versions in the table that the service uses, so that its migrate command finds nothing
// to do.
func migrate(ctx context.Context, owner, service, folder string) error {
	db, err := sql.Open("pgx", owner)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	provider, err := goose.NewProvider(database.DialectPostgres, db, os.DirFS(folder),
		goose.WithTableName("goose_"+service), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("migrations of %s: %w", service, err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrations of %s: %w", service, err)
	}
	return nil
}

func migrations(root, service string) string {
	return filepath.Join(root, service, "internal/store/postgres/migrations")
}

func hashMigrations(hash interface{ Write([]byte) (int, error) }, folder string) error {
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(hash, "%s %d\n%s", entry.Name(), len(content), content)
		return err
	})
}
