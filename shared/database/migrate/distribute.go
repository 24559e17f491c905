package migrate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A Distribution says which tables of a schema move to the nodes of a Citus cluster, and how. Each service has its own
// in distribution.json.
type Distribution struct {
	// Reference are the tables that are copied to each node.
	Reference []string
	// ByWorkspace are the tables that are distributed by tenant_id. All rows of a workspace are on one node.
	ByWorkspace []string
	// With is a distributed table of another schema, or "". Each workspace is on the same node in both schemas.
	With string
	// Constraints are the foreign keys between tables of ByWorkspace. They are dropped while the tables move.
	Constraints []Constraint
	// Functions are the functions that exist on every node, for triggers and for statements about one row. They name
	// the tables of Reference with their schema, so that readOwnCopies can replace the names.
	Functions []string
	// First are statements that run before any table moves. They can be repeated.
	First []string
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

// distributionLock is the key of the advisory lock of Distribute, an arbitrary number.
const distributionLock = 0x63697475

// Distribute distributes the tables of definition, a Distribution in JSON, that are not distributed yet, and reports
// each step to out. It connects as the owner of the database. Services may run meanwhile. Distribute can be repeated
// after a failure at any step.
func Distribute(ctx context.Context, url string, definition []byte, out io.Writer) error {
	var d Distribution
	if err := json.Unmarshal(definition, &d); err != nil {
		return fmt.Errorf("read distribution.json: %w", err)
	}
	return AsOwner(ctx, url, "distribute the tables", func(owner *Owner) {
		work := &distributing{Distribution: d, Owner: owner, out: out}
		work.prepare()
		work.readColumnGrants()
		work.addWorkspaceToKeys()
		work.Do(d.First...)
		work.setFunctions()
		work.runAsCaller()
		work.copyReferences()
		work.copyFunctions()
		work.readOwnCopies()
		work.distributeTables()
		work.addConstraints()
		work.grantColumns()
		if work.done == 0 {
			work.report("all tables are already distributed")
		}
	})
}

const hasCitus = "select exists (select from pg_extension where extname = 'citus')"

// HasCitus reports whether the database has the extension citus.
func HasCitus(ctx context.Context, url string) (has bool, err error) {
	err = AsOwner(ctx, url, "look for Citus", func(owner *Owner) { owner.Read(&has, hasCitus) })
	return has, err
}

// IsDistributed reports whether Citus has distributed tables of the database.
func IsDistributed(ctx context.Context, url string) (is bool, err error) {
	err = AsOwner(ctx, url, "look for distributed tables", func(owner *Owner) {
		if owner.Read(&is, "select to_regclass('pg_dist_partition') is not null") && is {
			owner.Read(&is, "select exists (select from pg_dist_partition)")
		}
	})
	return is, err
}

// distributing is a run of Distribute.
type distributing struct {
	Distribution
	*Owner
	out  io.Writer
	done int // steps

	columnGrants []string // statements
}

func (d *distributing) report(what string) {
	if d.err == nil {
		_, d.err = fmt.Fprintln(d.out, what)
	}
}

// step runs a statement and reports it.
func (d *distributing) step(what, statement string, args ...any) {
	if d.err != nil {
		return
	}
	if _, err := d.Exec(d.ctx, statement, args...); err != nil {
		d.Fail(fmt.Errorf("%s: %w", what, err))
		return
	}
	d.done++
	d.report(what)
}

// stepsOf runs the statements that a query selects, each with what it does.
func (d *distributing) stepsOf(query string, args ...any) {
	for _, step := range rowsOf(d, pgx.RowToStructByPos[struct{ What, Statement string }], query, args...) {
		d.step(step.What, step.Statement)
	}
}

// rowsOf returns the rows of a query.
func rowsOf[T any](d *distributing, scan pgx.RowToFunc[T], query string, args ...any) (all []T) {
	if d.err == nil {
		rows, _ := d.Query(d.ctx, query, args...) // the rows have the error
		all, d.err = pgx.CollectRows(rows, scan)
	}
	return all
}

// readBool returns the boolean that a query selects.
func (d *distributing) readBool(question string, args ...any) (answer bool) {
	d.Read(&answer, question, args...)
	return answer
}

// prepare checks the cluster, and waits for other processes that distribute tables.
func (d *distributing) prepare() {
	if !d.readBool(hasCitus) {
		d.Fail(ErrNoCitus)
	}
	if !d.readBool("select exists (select from pg_dist_node where groupid = 0)") {
		d.Fail(errors.New("the first node does not know its own address: run " +
			"select citus_set_coordinator_host('NAME') on it, with the name by which the other nodes reach it"))
	}
	d.Do(
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
func (d *distributing) readColumnGrants() {
	d.columnGrants = rowsOf(d, pgx.RowTo[string], `
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
}

func (d *distributing) grantColumns() { d.atomically(func() { d.Do(d.columnGrants...) }) }

// copyReferences copies the tables of Reference to each node. The triggers of a table are disabled meanwhile, because
// the rows are not new.
func (d *distributing) copyReferences() {
	for _, table := range rowsOf(d, pgx.RowTo[string], `
		select name from unnest($1::text[]) with ordinality one (name, place)
		where not exists (select from pg_dist_partition
			where logicalrelid = name::regclass and partmethod = 'n' and repmodel = 't')
		order by place`, d.Reference) {
		d.atomically(func() {
			d.Do("alter table " + table + " disable trigger user")
			d.step("copied "+table+" to each node", "select create_reference_table($1::text::regclass)", table)
			d.Do("alter table " + table + " enable trigger user")
		})
	}
}

// distributeTables distributes the tables by workspace. Citus copies the rows while services write, and blocks writes
// to a table only at the end.
func (d *distributing) distributeTables() {
	for _, table := range rowsOf(d, pgx.RowTo[string], `
		select name from unnest($1::text[]) with ordinality one (name, place)
		where not exists (select from pg_dist_partition where logicalrelid = name::regclass and partmethod = 'h')
		order by place`, d.ByWorkspace) {
		with := cmp.Or(d.With, d.ByWorkspace[0])
		if with == table {
			with = "default"
		}
		d.distributeTable(table, with)
	}
}

func (d *distributing) distributeTable(table, with string) {
	for _, c := range d.Constraints {
		if c.Table == table || strings.Contains(c.Definition, "references "+table+" ") {
			d.Do(fmt.Sprintf("alter table %s drop constraint if exists %s", c.Table, c.Name))
		}
	}
	if !d.distributeEmpty(table, with) {
		d.step("distributed "+table+" by workspace",
			"select create_distributed_table_concurrently($1::text::regclass, 'tenant_id', colocate_with := $2)",
			table, with)
	}
}

// distributeEmpty distributes a table that has no rows, and reports whether it did. It blocks the table for a moment.
// Without rows to copy, create_distributed_table_concurrently would still take seconds.
func (d *distributing) distributeEmpty(table, with string) (done bool) {
	hasRows := "select exists (select from " + table + ")"
	if d.readBool(hasRows) {
		return false
	}
	d.atomically(func() {
		d.Do("lock table " + table)
		if d.readBool(hasRows) { // inserted meanwhile
			return
		}
		done = true
		d.step("distributed "+table+" by workspace, which has no rows",
			"select create_distributed_table($1::text::regclass, 'tenant_id', colocate_with := $2)", table, with)
	})
	return done
}

// addWorkspaceToKeys adds tenant_id to the primary keys that lack it. This comes before any table is distributed,
// because Citus then refuses such changes.
func (d *distributing) addWorkspaceToKeys() {
	type key struct{ Table, Name, Columns string }
	for _, k := range rowsOf(d, pgx.RowToStructByPos[key], `
		select one.name, c.conname::text, string_agg(quote_ident(a.attname), ', ' order by k.place)
		from unnest($1::text[]) with ordinality one (name, place)
		join pg_constraint c on c.conrelid = one.name::regclass and c.contype = 'p'
		cross join unnest(c.conkey) with ordinality k (number, place)
		join pg_attribute a on a.attrelid = c.conrelid and a.attnum = k.number
		group by one.name, one.place, c.conname having not bool_or(a.attname = 'tenant_id')
		order by one.place`, d.ByWorkspace) {
		schema, name, _ := strings.Cut(k.Table, ".")
		index := name + "_workspace_key"
		d.Do(
			fmt.Sprintf("drop index concurrently if exists %s.%s", schema, index), // left by an interrupted try
			fmt.Sprintf("create unique index concurrently %s on %s (tenant_id, %s)", index, k.Table, k.Columns),
		)
		d.step("added tenant_id to the primary key of "+k.Table, fmt.Sprintf(
			"alter table %[1]s drop constraint %[2]s, add constraint %[2]s primary key using index %[3]s",
			k.Table, k.Name, index))
	}
}

// addConstraints adds the foreign keys that distributeTable dropped. The key of a partitioned table is validated
// immediately, because PostgreSQL does not support NOT VALID there.
func (d *distributing) addConstraints() {
	for _, c := range d.Constraints {
		d.stepsOf(`
			select what || ' the foreign key ' || $2::text,
				format('alter table %s %s constraint %s ', $1::text, verb, $2::text) || detail
			from pg_class r cross join lateral (values
				('added', 'add', $3::text || case r.relkind when 'p' then '' else ' not valid' end),
				('validated', 'validate', '')) step (what, verb, detail)
			where r.oid = $1::text::regclass
				and not exists (select from pg_constraint where conrelid = r.oid and conname = $2::text)
			order by what`, c.Table, c.Name, c.Definition)
	}
}

// setFunctions sets almoner.distributed for the functions that read this setting, and makes those of Sequential change
// one shard after the other.
func (d *distributing) setFunctions() {
	d.stepsOf(`
		select 'set almoner.distributed for ' || name, 'alter function ' || name || ' set almoner.distributed = ''on'''
		from pg_proc p join pg_namespace n on n.oid = p.pronamespace, cast(p.oid::regprocedure as text) name
		where n.nspname in ('account', 'resource') and p.prosrc like '%almoner.distributed%'
			and not coalesce('almoner.distributed=on' = any (p.proconfig), false)`)
	d.stepsOf(`
		select 'made ' || name || ' change one shard after the other',
			'alter function ' || name || ' set citus.multi_shard_modify_mode = ''sequential'''
		from unnest($1::text[]) name join pg_proc p on p.oid = name::regprocedure
		where not coalesce('citus.multi_shard_modify_mode=sequential' = any (p.proconfig), false)`, d.Sequential)
}

// runAsCaller makes the functions of AsCaller run with the rights of their caller, and grants these rights.
func (d *distributing) runAsCaller() {
	d.Do(d.Grants...)
	d.stepsOf(`
		select 'run ' || name || ' with the rights of its caller', 'alter function ' || name || ' security invoker'
		from unnest($1::text[]) name join pg_proc p on p.oid = name::regprocedure where p.prosecdef`, d.AsCaller)
}

// copyFunctions copies the functions of Functions to each node.
func (d *distributing) copyFunctions() {
	d.stepsOf(`
		select 'copied the function ' || name || ' to each node',
			format('select create_distributed_function(%L::regprocedure)', name)
		from unnest($1::text[]) name where not exists (select from pg_catalog.pg_dist_object
			where classid = 'pg_proc'::regclass and objid = name::regprocedure)`, d.Functions)
}

// readOwnCopies makes the functions of Functions read the copies of Reference by the names that they have on every
// node. Citus refuses the names of the tables in a statement that runs on a node, and plans such a query each time;
// PostgreSQL keeps its plan.
func (d *distributing) readOwnCopies() {
	copies := rowsOf(d, pgx.RowToStructByPos[struct{ Table, Copy string }], `
		select name, name || '_' || shardid from unnest($1::text[]) name
		join pg_dist_shard on logicalrelid = name::regclass`, d.Reference)
	for _, f := range rowsOf(d, pgx.RowToStructByPos[struct{ Name, Definition string }],
		"select name, pg_get_functiondef(name::regprocedure) from unnest($1::text[]) name", d.Functions) {
		definition := f.Definition
		for _, c := range copies {
			definition = regexp.MustCompile(regexp.QuoteMeta(c.Table)+`(_\d+)?\b`).ReplaceAllString(definition, c.Copy)
		}
		if definition != f.Definition {
			d.step("made "+f.Name+" read the copies of its node", definition)
		}
	}
}
