package migrate

import (
	"cmp"
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
	owner, err := Connect(ctx, url)
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
	owner, err := Connect(ctx, url)
	if err != nil {
		return false, fmt.Errorf("look for Citus: %w", err)
	}
	defer func() { _ = owner.Close(context.WithoutCancel(ctx)) }()
	w := &distributing{owner: owner}
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

func (d *distributing) report(what string) error {
	_, err := fmt.Fprintln(d.out, what)
	return err
}

// do runs a statement and reports it.
func (d *distributing) do(ctx context.Context, what, statement string, args ...any) error {
	if _, err := d.owner.Exec(ctx, statement, args...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	d.steps++
	return d.report(what)
}

// doEach runs the statements that a query selects, each with what it does.
func (d *distributing) doEach(ctx context.Context, query string, args ...any) error {
	type step struct{ What, Statement string }
	rows, _ := d.owner.Query(ctx, query, args...) // the rows have the error
	steps, err := pgx.CollectRows(rows, pgx.RowToStructByPos[step])
	for _, one := range steps {
		if err := d.do(ctx, one.What, one.Statement); err != nil {
			return err
		}
	}
	return err
}

// texts returns the texts that a query selects.
func (d *distributing) texts(ctx context.Context, query string, args ...any) ([]string, error) {
	rows, _ := d.owner.Query(ctx, query, args...) // the rows have the error
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func (d *distributing) is(ctx context.Context, question string, args ...any) (answer bool, err error) {
	err = d.owner.QueryRow(ctx, question, args...).Scan(&answer)
	return answer, err
}

// exec runs statements.
func (d *distributing) exec(ctx context.Context, statements ...string) error {
	for _, statement := range statements {
		if _, err := d.owner.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
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
	if err != nil {
		return err
	}
	if !first {
		return errors.New("the first node does not know its own address: run " +
			"select citus_set_coordinator_host('NAME') on it, with the name by which the other nodes reach it")
	}
	return d.exec(ctx,
		"set client_min_messages = warning",
		// Triggers that write events run on the nodes. They write rows of the same workspace, so on the same node.
		"set citus.enable_unsafe_triggers = on",
		"set lock_timeout = '5min'", // only other distributing processes wait
		fmt.Sprintf("select pg_advisory_lock(%d)", distributionLock),
		fmt.Sprintf("set lock_timeout = %d", LockTimeout.Milliseconds()),
	)
}

// readColumnGrants reads the privileges on columns, because Citus loses them when it converts some tables. In a table
// that it converts, a privilege to insert some columns becomes a privilege to insert rows, because Citus inserts
// default values explicitly. Other tables lose the privilege to insert rows that an earlier release gave them: a
// service must not choose the time of an audit event. The statements that revoke come first.
func (d *distributing) readColumnGrants(ctx context.Context) (err error) {
	d.columnGrants, err = d.texts(ctx, `
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
	return err
}

func (d *distributing) grantColumns(ctx context.Context) error {
	return pgx.BeginFunc(ctx, d.owner, func(pgx.Tx) error { return d.exec(ctx, d.columnGrants...) })
}

// copyReferences copies the tables of Reference to each node.
func (d *distributing) copyReferences(ctx context.Context) error {
	tables, err := d.texts(ctx, `select name from unnest($1::text[]) with ordinality one (name, place)
		where not exists (select from pg_dist_partition
			where logicalrelid = name::regclass and partmethod = 'n' and repmodel = 't')
		order by place`, d.Reference)
	for _, table := range tables {
		if err := d.copyTable(ctx, table); err != nil {
			return err
		}
	}
	return err
}

// copyTable copies a table to each node. The triggers of the table are disabled meanwhile, because the rows are not
// new.
func (d *distributing) copyTable(ctx context.Context, table string) error {
	return pgx.BeginFunc(ctx, d.owner, func(pgx.Tx) error {
		if err := d.exec(ctx, "alter table "+table+" disable trigger user"); err != nil {
			return err
		}
		err := d.do(ctx, "copied "+table+" to each node", "select create_reference_table($1::text::regclass)", table)
		if err != nil {
			return err
		}
		return d.exec(ctx, "alter table "+table+" enable trigger user")
	})
}

// distributeTables distributes the tables by workspace. Citus copies the rows while services write, and blocks writes
// to a table only at the end.
func (d *distributing) distributeTables(ctx context.Context) error {
	tables, err := d.texts(ctx, `select name from unnest($1::text[]) with ordinality one (name, place)
		where not exists (select from pg_dist_partition where logicalrelid = name::regclass and partmethod = 'h')
		order by place`, d.ByWorkspace)
	for _, table := range tables {
		with := cmp.Or(d.With, d.ByWorkspace[0])
		if with == table {
			with = "default"
		}
		if err := d.distributeTable(ctx, table, with); err != nil {
			return err
		}
	}
	return err
}

func (d *distributing) distributeTable(ctx context.Context, table, with string) error {
	for _, c := range d.Constraints {
		if c.Table != table && !strings.Contains(c.Definition, "references "+table+" ") {
			continue
		}
		err := d.exec(ctx, fmt.Sprintf("alter table %s drop constraint if exists %s", c.Table, c.Name))
		if err != nil {
			return err
		}
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
	err = pgx.BeginFunc(ctx, d.owner, func(pgx.Tx) error {
		if err := d.exec(ctx, "lock table "+table); err != nil {
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
	type key struct{ Table, Name, Columns string }
	rows, _ := d.owner.Query(ctx, `
		select one.name, c.conname::text, string_agg(quote_ident(a.attname), ', ' order by k.place)
		from unnest($1::text[]) with ordinality one (name, place)
		join pg_constraint c on c.conrelid = one.name::regclass and c.contype = 'p'
		cross join unnest(c.conkey) with ordinality k (number, place)
		join pg_attribute a on a.attrelid = c.conrelid and a.attnum = k.number
		group by one.name, one.place, c.conname having not bool_or(a.attname = 'tenant_id')
		order by one.place`, d.ByWorkspace) // the rows have the error
	keys, err := pgx.CollectRows(rows, pgx.RowToStructByPos[key])
	for _, k := range keys {
		schema, name, _ := strings.Cut(k.Table, ".")
		index := name + "_workspace_key"
		if err := d.exec(ctx,
			fmt.Sprintf("drop index concurrently if exists %s.%s", schema, index), // left by an interrupted try
			fmt.Sprintf("create unique index concurrently %s on %s (tenant_id, %s)", index, k.Table, k.Columns),
		); err != nil {
			return err
		}
		if err := d.do(ctx, "added tenant_id to the primary key of "+k.Table, fmt.Sprintf(
			"alter table %[1]s drop constraint %[2]s, add constraint %[2]s primary key using index %[3]s",
			k.Table, k.Name, index)); err != nil {
			return err
		}
	}
	return err
}

// addConstraints adds the foreign keys that distributeTable dropped. The key of a partitioned table is validated
// immediately, because PostgreSQL does not support NOT VALID there.
func (d *distributing) addConstraints(ctx context.Context) error {
	for _, c := range d.Constraints {
		err := d.doEach(ctx, `
			select what || ' the foreign key ' || $2::text,
				format('alter table %s %s constraint %s ', $1::text, verb, $2::text) || detail
			from pg_class r cross join lateral (values
				('added', 'add', $3::text || case r.relkind when 'p' then '' else ' not valid' end),
				('validated', 'validate', '')) step (what, verb, detail)
			where r.oid = $1::text::regclass
				and not exists (select from pg_constraint where conrelid = r.oid and conname = $2::text)
			order by what`, c.Table, c.Name, c.Definition)
		if err != nil {
			return err
		}
	}
	return nil
}

// setFunctions sets almoner.distributed for the functions that read this setting, and makes those of Sequential change
// one shard after the other.
func (d *distributing) setFunctions(ctx context.Context) error {
	err := d.doEach(ctx, `
		select 'set almoner.distributed for ' || name, 'alter function ' || name || ' set almoner.distributed = ''on'''
		from pg_proc p join pg_namespace n on n.oid = p.pronamespace, cast(p.oid::regprocedure as text) name
		where n.nspname in ('account', 'resource') and p.prosrc like '%almoner.distributed%'
			and not coalesce('almoner.distributed=on' = any (p.proconfig), false)`)
	if err != nil {
		return err
	}
	return d.doEach(ctx, `
		select 'made ' || name || ' change one shard after the other',
			'alter function ' || name || ' set citus.multi_shard_modify_mode = ''sequential'''
		from unnest($1::text[]) name join pg_proc p on p.oid = name::regprocedure
		where not coalesce('citus.multi_shard_modify_mode=sequential' = any (p.proconfig), false)`, d.Sequential)
}

// runAsCaller makes the functions of AsCaller run with the rights of their caller, and grants these rights.
func (d *distributing) runAsCaller(ctx context.Context) error {
	if err := d.exec(ctx, d.Grants...); err != nil {
		return err
	}
	return d.doEach(ctx, `
		select 'run ' || name || ' with the rights of its caller', 'alter function ' || name || ' security invoker'
		from unnest($1::text[]) name join pg_proc p on p.oid = name::regprocedure where p.prosecdef`, d.AsCaller)
}

// copyFunctions copies the functions of Functions to each node.
func (d *distributing) copyFunctions(ctx context.Context) error {
	return d.doEach(ctx, `
		select 'copied the function ' || name || ' to each node',
			format('select create_distributed_function(%L::regprocedure)', name)
		from unnest($1::text[]) name where not exists (select from pg_catalog.pg_dist_object
			where classid = 'pg_proc'::regclass and objid = name::regprocedure)`, d.Functions)
}
