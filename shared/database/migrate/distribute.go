package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A Distribution says which tables of a schema move to the nodes of a Citus cluster, and how.
type Distribution struct {
	// Reference are the tables that are copied to each node.
	Reference []string
	// ByWorkspace are the tables that are distributed by tenant_id. All rows of a workspace are on one node.
	ByWorkspace []string
	// With is a distributed table of another schema, or "". Each workspace is on the same node in both schemas.
	With string
	// Constraints are the foreign keys between tables of ByWorkspace. They are dropped while the tables move.
	Constraints []Constraint
	// Functions are the functions that triggers call. Triggers run on the nodes.
	Functions []string
	// AsCaller are functions that run with the rights of their caller in a distributed database, where a transaction
	// cannot change its role. Grants are the statements that give the callers these rights.
	AsCaller, Grants []string
	// Sequential are functions that change a table of ByWorkspace and then one of Reference. They change one shard
	// after the other.
	Sequential []string
}

// A Constraint is a foreign key.
type Constraint struct{ Table, Name, Definition string }

// ErrNoCitus is returned if the database does not have the extension citus.
var ErrNoCitus = errors.New("the database is not in a Citus cluster: install the extension citus on each node, " +
	"run create extension citus on each, and add the nodes on the first one (deploy/citus/README.md)")

// distributionLock is the key of the advisory lock of Apply, an arbitrary number.
const distributionLock = 0x63697475

// Apply distributes the tables that are not distributed yet, and reports each step to out. It connects as the owner of
// the database. Services may run meanwhile. Apply can be repeated after a failure at any step.
func (d Distribution) Apply(ctx context.Context, url string, out io.Writer) error {
	config, err := Config(url)
	if err != nil {
		return err
	}
	config.RuntimeParams["client_min_messages"] = "warning"
	owner, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("distribute the tables: %w", err)
	}
	defer func() { _ = owner.Close(context.WithoutCancel(ctx)) }() // releases the lock too
	work := &distributing{Distribution: d, owner: owner, out: out}
	for _, step := range []func(context.Context) error{
		work.prepare,
		work.readColumnGrants,
		work.addWorkspaceToKeys,
		work.setFunctions,
		work.runAsCaller,
		work.copyReferences,
		work.distributeTables,
		work.addConstraints,
		work.copyFunctions,
		work.grantColumns,
	} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("distribute the tables: %w", Explain(err))
		}
	}
	if work.steps == 0 {
		return work.report("all tables are already distributed")
	}
	return nil
}

const hasCitus = "select exists (select from pg_extension where extname = 'citus')"

// HasCitus reports whether the database has the extension citus.
func HasCitus(ctx context.Context, url string) (bool, error) {
	config, err := Config(url)
	if err != nil {
		return false, err
	}
	connection, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return false, fmt.Errorf("look for Citus: %w", err)
	}
	defer func() { _ = connection.Close(context.WithoutCancel(ctx)) }()
	w := &distributing{owner: connection}
	return w.is(ctx, hasCitus)
}

// distributing is a run of Apply.
type distributing struct {
	Distribution
	owner *pgx.Conn
	out   io.Writer
	steps int

	columnGrants []string // statements
}

func (d *distributing) report(format string, args ...any) error {
	_, err := fmt.Fprintf(d.out, format+"\n", args...)
	return err
}

// do runs a statement and reports it.
func (d *distributing) do(ctx context.Context, what, statement string, args ...any) error {
	if _, err := d.owner.Exec(ctx, statement, args...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	d.steps++
	return d.report("%s", what)
}

func (d *distributing) is(ctx context.Context, question string, args ...any) (answer bool, err error) {
	err = d.owner.QueryRow(ctx, question, args...).Scan(&answer)
	return answer, err
}

// prepare checks the cluster, and waits for other processes that distribute tables.
func (d *distributing) prepare(ctx context.Context) error {
	found, err := d.is(ctx, hasCitus)
	if err != nil {
		return err
	}
	if !found {
		return ErrNoCitus
	}
	first, err := d.is(ctx, "select exists (select from pg_dist_node where groupid = 0)")
	if err == nil && !first {
		err = errors.New("the first node does not know its own address: run " +
			"select citus_set_coordinator_host('NAME') on it, with the name by which the other nodes reach it")
	}
	if err == nil {
		// Triggers that write events run on the nodes. They write rows of the same workspace, so on the same node.
		_, err = d.owner.Exec(ctx, "set citus.enable_unsafe_triggers = on")
	}
	if err == nil {
		_, err = d.owner.Exec(ctx, "set lock_timeout = '5min'") // only other distributing processes wait
	}
	if err == nil {
		_, err = d.owner.Exec(ctx, "select pg_advisory_lock($1)", distributionLock)
	}
	if err == nil {
		_, err = d.owner.Exec(ctx, fmt.Sprintf("set lock_timeout = %d", LockTimeout.Milliseconds()))
	}
	return err
}

const (
	isReference = `select exists (
		select from pg_dist_partition where logicalrelid = $1::text::regclass and partmethod = 'n' and repmodel = 't')`
	isDistributed = `select exists (
		select from pg_dist_partition where logicalrelid = $1::text::regclass and partmethod = 'h')`
)

// readColumnGrants reads the privileges on columns, because Citus loses them when it converts some tables. In a table
// that it converts, a privilege to insert some columns becomes a privilege to insert rows, because Citus inserts
// default values explicitly. Other tables lose the privilege to insert rows that an earlier release gave them: a
// service must not choose the time of an audit event. The statements that revoke come first.
func (d *distributing) readColumnGrants(ctx context.Context) error {
	rows, err := d.owner.Query(ctx, `
		with privileges as (
			select a.attname, a.attrelid::regclass as relation, g.grantee::regrole as role, g.privilege_type,
				g.privilege_type = 'INSERT' as inserts, a.attrelid::regclass::text = any ($1) as moves
			from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
			cross join lateral aclexplode(a.attacl) g
			where n.nspname in ('account', 'resource') and g.grantee <> 0
		)
		select format('revoke insert on %s from %I', relation, role) from privileges where inserts and not moves
		union
		select case when inserts and moves then format('grant insert on %s to %I', relation, role)
			else format('grant %s (%I) on %s to %I', privilege_type, attname, relation, role) end from privileges
		order by 1 desc`, slices.Concat(d.Reference, d.ByWorkspace))
	if err != nil {
		return err
	}
	d.columnGrants, err = pgx.CollectRows(rows, pgx.RowTo[string])
	return err
}

func (d *distributing) grantColumns(ctx context.Context) error {
	return pgx.BeginFunc(ctx, d.owner, func(tx pgx.Tx) error {
		for _, statement := range d.columnGrants {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
}

func (d *distributing) copyReferences(ctx context.Context) error {
	for _, table := range d.Reference {
		if done, err := d.is(ctx, isReference, table); err != nil || done {
			if err != nil {
				return err
			}
			continue
		}
		if err := d.copyTable(ctx, table); err != nil {
			return err
		}
	}
	return nil
}

// copyTable copies a table to each node. The triggers of the table are disabled meanwhile, because the rows are not
// new.
func (d *distributing) copyTable(ctx context.Context, table string) error {
	return pgx.BeginFunc(ctx, d.owner, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "alter table "+table+" disable trigger user"); err != nil {
			return err
		}
		err := d.do(ctx, "copied "+table+" to each node", "select create_reference_table($1::text::regclass)", table)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "alter table "+table+" enable trigger user")
		return err
	})
}

// distributeTables distributes the tables by workspace. Citus copies the rows while services write, and blocks writes
// to a table only at the end.
func (d *distributing) distributeTables(ctx context.Context) error {
	with := d.With
	for _, table := range d.ByWorkspace {
		done, err := d.is(ctx, isDistributed, table)
		if err != nil {
			return err
		}
		if !done {
			if err := d.distributeTable(ctx, table, with); err != nil {
				return err
			}
		}
		if with == "" {
			with = table
		}
	}
	return nil
}

func (d *distributing) distributeTable(ctx context.Context, table, with string) error {
	for _, c := range d.Constraints {
		if c.Table != table && !strings.Contains(c.Definition, "references "+table+" ") {
			continue
		}
		statement := fmt.Sprintf("alter table %s drop constraint if exists %s", c.Table, c.Name)
		if _, err := d.owner.Exec(ctx, statement); err != nil {
			return err
		}
	}
	if with == "" {
		with = "default"
	}
	if done, err := d.distributeEmpty(ctx, table, with); err != nil || done {
		return err
	}
	return d.do(ctx, "distributed "+table+" by workspace",
		"select create_distributed_table_concurrently($1::text::regclass, 'tenant_id', colocate_with := $2)",
		table, with)
}

// distributeEmpty distributes a table that has no rows, and reports whether it did. It blocks the table for a moment.
// Without rows to copy, create_distributed_table_concurrently would still take seconds.
func (d *distributing) distributeEmpty(ctx context.Context, table, with string) (done bool, err error) {
	hasRows := "select exists (select from " + table + ")"
	if rows, err := d.is(ctx, hasRows); err != nil || rows {
		return false, err
	}
	err = pgx.BeginFunc(ctx, d.owner, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "lock table "+table); err != nil {
			return err
		}
		if rows, err := d.is(ctx, hasRows); err != nil || rows { // inserted meanwhile
			return err
		}
		done = true
		return d.do(ctx, "distributed "+table+" by workspace, which has no rows",
			"select create_distributed_table($1::text::regclass, 'tenant_id', colocate_with := $2)", table, with)
	})
	return done, err
}

// addWorkspaceToKeys adds tenant_id to the primary keys that lack it. This comes before any table is distributed,
// because Citus then refuses such changes.
func (d *distributing) addWorkspaceToKeys(ctx context.Context) error {
	for _, table := range d.ByWorkspace {
		if err := d.addWorkspaceToKey(ctx, table); err != nil {
			return err
		}
	}
	return nil
}

func (d *distributing) addWorkspaceToKey(ctx context.Context, table string) error {
	var constraint, columns string
	err := d.owner.QueryRow(ctx, `
		select c.conname, string_agg(quote_ident(a.attname), ', ' order by k.place)
		from pg_constraint c cross join unnest(c.conkey) with ordinality k (number, place)
		join pg_attribute a on a.attrelid = c.conrelid and a.attnum = k.number
		where c.conrelid = $1::text::regclass and c.contype = 'p'
		group by c.conname having not bool_or(a.attname = 'tenant_id')`, table).Scan(&constraint, &columns)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	schema, name, _ := strings.Cut(table, ".")
	index := name + "_workspace_key"
	for _, statement := range []string{
		fmt.Sprintf("drop index concurrently if exists %s.%s", schema, index), // left by an interrupted try
		fmt.Sprintf("create unique index concurrently %s on %s (tenant_id, %s)", index, table, columns),
		fmt.Sprintf("alter table %s drop constraint %s, add constraint %s primary key using index %s",
			table, constraint, constraint, index),
	} {
		if _, err := d.owner.Exec(ctx, statement); err != nil {
			return err
		}
	}
	d.steps++
	return d.report("added tenant_id to the primary key of %s", table)
}

// addConstraints adds the foreign keys that distributeTable dropped. The key of a partitioned table is validated
// immediately, because PostgreSQL does not support NOT VALID there.
func (d *distributing) addConstraints(ctx context.Context) error {
	for _, c := range d.Constraints {
		done, err := d.is(ctx, `select exists (
			select from pg_constraint where conrelid = $1::text::regclass and conname = $2)`, c.Table, c.Name)
		if err != nil {
			return err
		}
		if done {
			continue
		}
		partitioned, err := d.is(ctx, "select relkind = 'p' from pg_class where oid = $1::text::regclass", c.Table)
		if err != nil {
			return err
		}
		statement := fmt.Sprintf("alter table %s add constraint %s %s", c.Table, c.Name, c.Definition)
		if !partitioned {
			statement += " not valid"
		}
		if err := d.do(ctx, "added the foreign key "+c.Name, statement); err != nil {
			return err
		}
		statement = fmt.Sprintf("alter table %s validate constraint %s", c.Table, c.Name)
		if err := d.do(ctx, "validated the foreign key "+c.Name, statement); err != nil {
			return err
		}
	}
	return nil
}

// setFunctions sets almoner.distributed for the functions that read this setting.
func (d *distributing) setFunctions(ctx context.Context) error {
	rows, err := d.owner.Query(ctx, `
		select p.oid::regprocedure::text from pg_proc p join pg_namespace n on n.oid = p.pronamespace
		where n.nspname in ('account', 'resource') and p.prosrc like '%almoner.distributed%'
			and not coalesce('almoner.distributed=on' = any (p.proconfig), false)`)
	if err != nil {
		return err
	}
	functions, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, function := range functions {
		statement := "alter function " + function + " set almoner.distributed = 'on'"
		if err := d.do(ctx, "set almoner.distributed for "+function, statement); err != nil {
			return err
		}
	}
	return d.setSequential(ctx)
}

func (d *distributing) setSequential(ctx context.Context) error {
	const setting = "citus.multi_shard_modify_mode"
	for _, function := range d.Sequential {
		done, err := d.is(ctx, `select coalesce($2 || '=sequential' = any (proconfig), false) from pg_proc
			where oid = $1::text::regprocedure`, function, setting)
		if err != nil {
			return err
		}
		if done {
			continue
		}
		statement := "alter function " + function + " set " + setting + " = 'sequential'"
		if err := d.do(ctx, "made "+function+" change one shard after the other", statement); err != nil {
			return err
		}
	}
	return nil
}

// runAsCaller makes the functions of AsCaller run with the rights of their caller, and grants these rights.
func (d *distributing) runAsCaller(ctx context.Context) error {
	for _, statement := range d.Grants {
		if _, err := d.owner.Exec(ctx, statement); err != nil {
			return err
		}
	}
	for _, function := range d.AsCaller {
		var definer bool
		err := d.owner.QueryRow(ctx, "select prosecdef from pg_proc where oid = $1::text::regprocedure", function).
			Scan(&definer)
		if err != nil {
			return err
		}
		if !definer {
			continue
		}
		statement := "alter function " + function + " security invoker"
		if err := d.do(ctx, "run "+function+" with the rights of its caller", statement); err != nil {
			return err
		}
	}
	return nil
}

func (d *distributing) copyFunctions(ctx context.Context) error {
	for _, function := range d.Functions {
		done, err := d.is(ctx, `select exists (select from pg_catalog.pg_dist_object
			where classid = 'pg_proc'::regclass and objid = $1::text::regprocedure)`, function)
		if err != nil {
			return err
		}
		if done {
			continue
		}
		what := "copied the function " + function + " to each node"
		if err := d.do(ctx, what, "select create_distributed_function($1::text::regprocedure)", function); err != nil {
			return err
		}
	}
	return nil
}
