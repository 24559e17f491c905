package migrate

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// setFunctions sets almoner.distributed for the functions that read this setting.
func (w *distributing) setFunctions(ctx context.Context) error {
	rows, err := w.owner.Query(ctx, `
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
		if err := w.do(ctx, "set almoner.distributed for "+function, statement); err != nil {
			return err
		}
	}
	return w.setSequential(ctx)
}

func (w *distributing) setSequential(ctx context.Context) error {
	const setting = "citus.multi_shard_modify_mode"
	for _, function := range w.Sequential {
		done, err := w.is(ctx, `select coalesce($2 || '=sequential' = any (proconfig), false) from pg_proc
			where oid = $1::text::regprocedure`, function, setting)
		if err != nil {
			return err
		}
		if done {
			continue
		}
		statement := "alter function " + function + " set " + setting + " = 'sequential'"
		if err := w.do(ctx, "made "+function+" change one shard after the other", statement); err != nil {
			return err
		}
	}
	return nil
}

// runAsCaller makes the functions of AsCaller run with the rights of their caller, and grants these rights.
func (w *distributing) runAsCaller(ctx context.Context) error {
	for _, statement := range w.Grants {
		if _, err := w.owner.Exec(ctx, statement); err != nil {
			return err
		}
	}
	for _, function := range w.AsCaller {
		var definer bool
		err := w.owner.QueryRow(ctx, "select prosecdef from pg_proc where oid = $1::text::regprocedure", function).
			Scan(&definer)
		if err != nil {
			return err
		}
		if !definer {
			continue
		}
		statement := "alter function " + function + " security invoker"
		if err := w.do(ctx, "run "+function+" with the rights of its caller", statement); err != nil {
			return err
		}
	}
	return nil
}

func (w *distributing) copyFunctions(ctx context.Context) error {
	for _, function := range w.Functions {
		done, err := w.is(ctx, `select exists (select from pg_catalog.pg_dist_object
			where classid = 'pg_proc'::regclass and objid = $1::text::regprocedure)`, function)
		if err != nil {
			return err
		}
		if done {
			continue
		}
		what := "copied the function " + function + " to each node"
		if err := w.do(ctx, what, "select create_distributed_function($1::text::regprocedure)", function); err != nil {
			return err
		}
	}
	return nil
}
