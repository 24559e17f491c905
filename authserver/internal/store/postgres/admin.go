package postgres

import (
	"context"
	"errors"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/admin"
)

var _ admin.Store = (*Store)(nil)

// administer runs do in a transaction, like atomically, and returns an *admin.Refusal unchanged.
func (s *Store) administer(ctx context.Context, op string, do func(pgx.Tx) error) error {
	var refused *admin.Refusal
	err := s.atomically(ctx, op, func(tx pgx.Tx) error {
		refused = nil
		err := do(tx)
		errors.As(err, &refused)
		return err
	})
	if refused != nil {
		return refused
	}
	return err
}

// SQLSTATE codes of PostgreSQL.
const (
	foreignKeyViolation = "23503"
	uniqueViolation     = "23505"
)

// violates reports whether err says that a row of a table (without its schema) violates a constraint of this kind. In a
// distributed Postgres, the names of the table and of the constraint end with the number of a shard.
func violates(err error, code, table string) bool {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != code {
		return false
	}
	shard, found := strings.CutPrefix(refused.TableName, table)
	return found && strings.Trim(shard, "_0123456789") == ""
}

// AddOrganisation inserts an organisation with its event.
func (s *Store) AddOrganisation(
	ctx context.Context,
	id uuid.UUID,
	name string,
	event audit.Event,
) (admin.Organisation, error) {
	added := admin.Organisation{ID: id, Name: name}
	err := s.administer(ctx, "add organisation", func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `insert into account.organisations (id, name) values ($1, $2)
			returning created_at`, id, name).
			Scan(&added.Created)
		if err != nil {
			return err
		}
		return s.record(ctx, tx, event)
	})
	return added, err
}

// Organisations lists all organisations by name.
func (s *Store) Organisations(ctx context.Context) ([]admin.Organisation, error) {
	return listed(
		ctx,
		s,
		"list organisations",
		`select id, name, created_at from account.organisations order by name, id`,
		nil,
		func(row pgx.CollectableRow) (o admin.Organisation, err error) {
			return o, row.Scan(&o.ID, &o.Name, &o.Created)
		},
	)
}

// AddWorkspace inserts a workspace with its event, or returns admin.ErrNoOrganisation.
func (s *Store) AddWorkspace(ctx context.Context, id, organisation uuid.UUID, name string, event audit.Event) error {
	return s.administer(ctx, "add tenant", func(tx pgx.Tx) error {
		_, err := tx.Exec(
			ctx,
			`insert into account.tenants (id, organisation_id, name) values ($1, $2, $3)`,
			id,
			organisation,
			name,
		)
		if violates(err, foreignKeyViolation, "tenants") {
			return admin.ErrNoOrganisation
		}
		if err != nil {
			return err
		}
		return s.record(ctx, tx, event)
	})
}

const workspacesSQL = `
select t.id, t.organisation_id, o.name, t.name, t.created_at,
  coalesce((select jsonb_agg(jsonb_build_object('name', m.module, 'enabled', m.enabled, 'provisioned', m.provisioned)
      order by m.module)
    from account.tenant_modules m where m.tenant_id = t.id), '[]'),
  coalesce((select array_agg(f.feature order by f.feature) from account.tenant_features f where f.tenant_id = t.id
    and f.enabled), '{}')
from account.tenants t join account.organisations o on o.id = t.organisation_id
where @organisation::uuid is null or t.organisation_id = @organisation
order by o.name, t.name, t.id`

// Workspaces lists the workspaces of one organisation, or all, by organisation and name.
func (s *Store) Workspaces(ctx context.Context, organisation *uuid.UUID) ([]admin.Workspace, error) {
	return listed(ctx, s, "list tenants", workspacesSQL, pgx.NamedArgs{"organisation": organisation},
		func(row pgx.CollectableRow) (t admin.Workspace, err error) {
			return t, row.Scan(&t.ID, &t.OrganisationID, &t.Organisation, &t.Name, &t.Created, &t.Modules, &t.Features)
		})
}

// SetModule changes a module of a workspace with the event, or returns admin.ErrNoWorkspace.
func (s *Store) SetModule(
	ctx context.Context,
	workspaceID uuid.UUID,
	module string,
	change admin.ModuleChange,
	event audit.Event,
) (admin.Module, error) {
	after := admin.Module{Name: module}
	err := s.administer(ctx, "set module", func(tx pgx.Tx) error {
		err := tx.QueryRow(
			ctx,
			`
insert into account.tenant_modules as m (tenant_id, module, enabled, provisioned)
values (@tenant, @module, coalesce(@enabled, false), coalesce(@provisioned, false))
on conflict (tenant_id, module) do update set enabled = coalesce(@enabled, m.enabled),
  provisioned = coalesce(@provisioned, m.provisioned)
returning enabled, provisioned`,
			pgx.NamedArgs{
				"tenant":      workspaceID,
				"module":      module,
				"enabled":     change.Enabled,
				"provisioned": change.Provisioned,
			},
		).
			Scan(&after.Enabled, &after.Provisioned)
		if violates(err, foreignKeyViolation, "tenant_modules") {
			return admin.ErrNoWorkspace
		}
		if err != nil {
			return err
		}
		return s.record(ctx, tx, event)
	})
	return after, err
}

// SetFeature switches a feature of a workspace with the event, or returns admin.ErrNoWorkspace.
func (s *Store) SetFeature(
	ctx context.Context,
	workspaceID uuid.UUID,
	feature string,
	on bool,
	event audit.Event,
) error {
	return s.administer(ctx, "set feature", func(tx pgx.Tx) error {
		if err := stillAllowed(ctx, tx, event.Authorization); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `insert into account.tenant_features (tenant_id, feature, enabled) values ($1, $2, $3)
			on conflict (tenant_id, feature) do update set enabled = excluded.enabled`, workspaceID, feature, on)
		if violates(err, foreignKeyViolation, "tenant_features") {
			return admin.ErrNoWorkspace
		}
		if err != nil {
			return err
		}
		return s.record(ctx, tx, event)
	})
}

// listed reads the rows of a query; args may be nil.
func listed[T any](
	ctx context.Context,
	s *Store,
	op, query string,
	args pgx.NamedArgs,
	scan pgx.RowToFunc[T],
) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.operationLimit)
	defer cancel()
	rows, err := s.reader(ctx).Query(ctx, query, args)
	if err != nil {
		return nil, unavailable(op, err)
	}
	found, err := pgx.CollectRows(rows, scan)
	return found, unavailable(op, err)
}
