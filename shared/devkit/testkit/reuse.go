package testkit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Creating and dropping a database takes about 0.15 s of processor time, because PostgreSQL copies and removes 550
// files. Removing the rows of a test takes a fifth of that. So a database in which a test changed only rows is used
// again.

// contents describes a newly copied database.
type contents struct {
	Tables      []string `json:"tables"`      // with rows in the template: the versions of the migrations
	Sequences   []string `json:"sequences"`   // that were used
	Fingerprint string   `json:"fingerprint"` // of the schema, of statistics, and of the rows of Tables
}

// maxTableSize is the maximum size of a table, in bytes, in a database that is used again: deleted rows stay in its
// file.
const maxTableSize = 64 << 10

const findTables = `select coalesce(array_agg(c.oid::regclass::text order by c.oid), '{}'),
	coalesce(max(pg_relation_size(c.oid)), 0)
	from pg_class c join pg_namespace n on n.oid = c.relnamespace
	where relkind = 'r' and nspname not in ('pg_catalog', 'information_schema', 'pg_toast')
	and pg_relation_size(c.oid) > 0`

const findSequences = `select coalesce(array_agg(format('%I.%I', schemaname, sequencename) order by 1), '{}')
	from pg_sequences where last_value is not null`

// fingerprint returns a text that differs after any change of the schema or of the rows of tables. It has the number of
// rows and the highest xmin: a change writes a row with a higher xmin, or removes one.
func fingerprint(ctx context.Context, connection *pgx.Conn, tables []string) (string, error) {
	var parts []string
	for _, table := range append([]string{
		"pg_attrdef", "pg_attribute", "pg_class", "pg_constraint", "pg_default_acl", "pg_enum", "pg_event_trigger",
		"pg_extension", "pg_index", "pg_largeobject_metadata", "pg_namespace", "pg_policy", "pg_proc", "pg_publication",
		"pg_rewrite", "pg_sequence", "pg_statistic", "pg_trigger", "pg_type",
	}, tables...) {
		parts = append(parts, "(select concat(count(*), '/', max(xmin::text::bigint)) from only "+table+")")
	}
	// vacuum and analyze overwrite these figures without a new xmin.
	parts = append(parts, "(select concat(sum(reltuples), '/', sum(relpages)) from pg_class)")
	var schema string
	err := connection.QueryRow(ctx, "select concat_ws(' ', "+strings.Join(parts, ", ")+")").Scan(&schema)
	return schema, err
}

// describe returns the contents of a new database.
func describe(ctx context.Context, connection *pgx.Conn) (contents, error) {
	var c contents
	var size int64
	if err := connection.QueryRow(ctx, findTables).Scan(&c.Tables, &size); err != nil {
		return contents{}, err
	}
	if err := connection.QueryRow(ctx, findSequences).Scan(&c.Sequences); err != nil {
		return contents{}, err
	}
	var err error
	c.Fingerprint, err = fingerprint(ctx, connection, c.Tables)
	return c, err
}

// storeContents stores the contents of the template as the comment of its database (comment on database).
func (t template) storeContents(ctx context.Context, superuser *pgx.Conn) error {
	connection, err := pgx.Connect(ctx, InDatabase(t.server, t.name))
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close(context.WithoutCancel(ctx)) }()
	described, err := describe(ctx, connection)
	if err != nil {
		return err
	}
	comment, err := json.Marshal(described)
	if err != nil {
		return err
	}
	_, err = superuser.Exec(ctx, "comment on database "+pgx.Identifier{t.name}.Sanitize()+" is '"+
		strings.ReplaceAll(string(comment), "'", "''")+"'")
	return err
}

// readContents reads the contents of the template, or returns pgx.ErrNoRows if the template is not finished.
func (t template) readContents(ctx context.Context, superuser *pgx.Conn) (contents, error) {
	var comment string
	err := superuser.QueryRow(ctx, `select shobj_description(oid, 'pg_database') from pg_database
		where datname = $1 and datistemplate`, t.name).Scan(&comment)
	if err != nil {
		return contents{}, err
	}
	var described contents
	return described, json.Unmarshal([]byte(comment), &described)
}

// emptiedPrefix begins the names of the emptied databases that are copies of this template.
func (t template) emptiedPrefix() string {
	return "emptied_" + strings.TrimPrefix(t.name, templatePrefix) + "_"
}

// reuseDatabase renames an emptied database to name, and reports whether there was one.
func (t template) reuseDatabase(ctx context.Context, superuser *pgx.Conn, name string) (bool, error) {
	for {
		var emptied string
		err := superuser.QueryRow(ctx,
			"select datname from pg_database where starts_with(datname, $1) order by random() limit 1",
			t.emptiedPrefix()).Scan(&emptied)
		if errors.Is(err, pgx.ErrNoRows) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		err = rename(ctx, superuser, emptied, name)
		fault, refused := errors.AsType[*pgconn.PgError](err)
		if !refused || !slices.Contains(renameConflictCodes, fault.Code) {
			return err == nil, err
		}
	}
}

// renameConflictCodes are the codes of the errors if another process renames the same database first:
// invalid_catalog_name, and internal_error for a row that was updated concurrently.
var renameConflictCodes = []string{"3D000", "XX000"}

func rename(ctx context.Context, superuser *pgx.Conn, from, to string) error {
	_, err := superuser.Exec(ctx,
		"alter database "+pgx.Identifier{from}.Sanitize()+" rename to "+pgx.Identifier{to}.Sanitize())
	return err
}

// recycle renames a database, so that no service of its test can connect to it, and empties it. It reports false if the
// database cannot be made like a new one.
func (t template) recycle(ctx context.Context, superuser *pgx.Conn, name string) (bool, error) {
	var changed bool
	err := superuser.QueryRow(ctx, `select datconnlimit <> -1 or datacl is not null or not datallowconn
		or datdba <> (select oid from pg_roles where rolname = $2)
		or exists (select from pg_db_role_setting where setdatabase = d.oid)
		from pg_database d where datname = $1`, name, ownerRole).Scan(&changed)
	if err != nil || changed {
		return false, err
	}
	var ended bool
	err = superuser.QueryRow(ctx, `select coalesce(bool_and(pg_terminate_backend(pid, 10000)), true)
		from pg_stat_activity where datname = $1`, name).Scan(&ended)
	if err != nil || !ended {
		return false, err
	}
	closed := closedName(name)
	if err := rename(ctx, superuser, name, closed); err != nil {
		return false, err
	}
	if emptied, err := t.empty(ctx, closed); err != nil || !emptied {
		return false, err
	}
	return true, rename(ctx, superuser, closed, t.emptiedPrefix()+strings.TrimPrefix(name, databasePrefix))
}

// closedName returns the name of a test's database while it is emptied.
func closedName(name string) string { return "closed_" + strings.TrimPrefix(name, databasePrefix) }

// empty removes all rows that the template does not have. It reports false if the schema was changed or a table is
// large.
func (t template) empty(ctx context.Context, name string) (bool, error) {
	connection, err := pgx.Connect(ctx, InDatabase(t.server, name))
	if err != nil {
		return false, err
	}
	defer func() { _ = connection.Close(context.WithoutCancel(ctx)) }() // waits until the session has ended
	schema, err := fingerprint(ctx, connection, t.contents.Tables)
	if err != nil || schema != t.contents.Fingerprint {
		return false, err
	}
	var tables, sequences []string
	var size int64
	if err := connection.QueryRow(ctx, findTables).Scan(&tables, &size); err != nil || size > maxTableSize {
		return false, err
	}
	if err := connection.QueryRow(ctx, findSequences).Scan(&sequences); err != nil {
		return false, err
	}
	statements := []string{"set local session_replication_role = replica"} // runs no trigger
	for _, table := range tables {
		if !slices.Contains(t.contents.Tables, table) {
			statements = append(statements, "delete from only "+table)
		}
	}
	for _, sequence := range sequences {
		if !slices.Contains(t.contents.Sequences, sequence) {
			statements = append(statements, fmt.Sprintf(
				"select setval('%s', seqstart, false) from pg_sequence where seqrelid = '%[1]s'::regclass", sequence))
		}
	}
	statements = append(statements, "select pg_stat_reset()")
	// Several statements in one message are one transaction.
	_, err = connection.PgConn().Exec(ctx, strings.Join(statements, "; ")).ReadAll()
	return err == nil, err
}

// makeDatabase makes a database that is equal to the template.
func (t template) makeDatabase(ctx context.Context, name string) error {
	connection, err := t.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer connection.Release()
	superuser := connection.Conn()
	if found, err := t.reuseDatabase(ctx, superuser, name); err != nil || found {
		return err
	}
	_, err = superuser.Exec(ctx, "create database "+pgx.Identifier{name}.Sanitize()+
		" template "+pgx.Identifier{t.name}.Sanitize()+" owner "+ownerRole)
	return err
}

// endDatabase gives a database back if another test may use it, or drops it.
func (t template) endDatabase(ctx context.Context, name string, reuse bool) error {
	connection, err := t.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer connection.Release()
	superuser := connection.Conn()
	if reuse && !distributes() { // a distributed database has rows on other nodes
		if given, err := t.recycle(ctx, superuser, name); err == nil && given {
			return nil
		}
	}
	for _, each := range []string{name, closedName(name)} {
		_, err := superuser.Exec(ctx, "drop database if exists "+pgx.Identifier{each}.Sanitize()+" with (force)")
		if err != nil {
			return err
		}
	}
	return nil
}

// distributeVariable makes the databases of tests distributed ones, if it is "1". The server must be a single node with
// the extension citus.
const distributeVariable = "ALMONER_TEST_DISTRIBUTE"

func distributes() bool { return os.Getenv(distributeVariable) == "1" }

// SkipIfDistributed skips a test that cannot pass in a distributed database.
func SkipIfDistributed(t testing.TB, reason string) {
	t.Helper()
	if distributes() {
		t.Skip("in a distributed database " + reason)
	}
}

// distribute distributes the template with the commands of the services. Each copy of the template is then a Citus
// cluster of one node.
func (t template) distribute(ctx context.Context) error {
	superuser, err := pgx.Connect(ctx, InDatabase(t.server, t.name))
	if err != nil {
		return fmt.Errorf("distribute the template database: %w", err)
	}
	defer func() { _ = superuser.Close(context.WithoutCancel(ctx)) }()
	config := superuser.Config()
	err = execute(ctx, superuser, "create extension citus",
		fmt.Sprintf("select citus_set_coordinator_host('%s', %d)", config.Host, config.Port),
		"select citus_set_node_property(nodename, nodeport, 'shouldhaveshards', true) from pg_dist_node")
	if err != nil {
		return err
	}
	for _, service := range services() {
		command := exec.CommandContext(ctx, "go", "run", "./cmd/"+service, "migrate", "--distribute", "--yes")
		command.Dir = filepath.Join(t.root, service)
		command.Env = append(os.Environ(), "ALMONER_DATABASE_URL="+t.url(ownerRole, t.name))
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("distribute the template database: %w: %s", err, out)
		}
	}
	// Tests create it themselves.
	return execute(ctx, superuser, "drop index if exists resource.programmes_search")
}
