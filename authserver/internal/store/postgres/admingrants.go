package postgres

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
)

// EveryClient lists the clients of one workspace, or all clients if workspaceID is nil, newest first. It
// includes services.
func (s *Store) EveryClient(ctx context.Context, workspaceID *uuid.UUID) ([]admin.Client, error) {
	return listed(ctx, s, "list clients", `
select c.id, c.kind, c.tenant_id, coalesce(t.name, ''), c.name, c.token_endpoint_auth_method, c.created_at,
  (select count(*) from account.grants g where g.client_id = c.id and g.state = 'active' and g.ends_at > now())
from account.oauth_clients c left join account.tenants t on t.id = c.tenant_id
where c.deleted_at is null and (@tenant::uuid is null or c.tenant_id = @tenant)
order by c.created_at desc, c.id desc`,
		pgx.NamedArgs{"tenant": workspaceID}, func(row pgx.CollectableRow) (c admin.Client, err error) {
			return c, row.Scan(
				&c.ID,
				&c.Kind,
				&c.WorkspaceID,
				&c.Workspace,
				&c.Name,
				&c.AuthMethod,
				&c.Created,
				&c.Grants,
			)
		})
}

// EndClient deletes a client and ends its grants, with the events, in one transaction. The client may belong to any
// workspace or to none. It returns the grants that it revoked, and whether EndNext revokes others; or admin.ErrNoClient
// if the client does not exist.
func (s *Store) EndClient(
	ctx context.Context, id uuid.UUID, event audit.Event,
) (ended []grant.Grant, more bool, err error) {
	err = s.administer(ctx, "end client", func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `update account.oauth_clients set deleted_at = now() where id = $1
			and deleted_at is null returning tenant_id`, id).
			Scan(&event.WorkspaceID)
		if errors.Is(err, pgx.ErrNoRows) {
			return admin.ErrNoClient
		}
		if err != nil {
			return err
		}
		e := ending{client: &id, reason: grant.ClientDeleted, actor: event.Actor}
		workspaces := []uuid.UUID{}
		if event.WorkspaceID != nil {
			workspaces = append(workspaces, *event.WorkspaceID)
		} else if workspaces, err = workspacesOfClient(ctx, tx, id); err != nil {
			return err
		}
		p, err := e.beginIn(ctx, tx, workspaces)
		if err != nil {
			return err
		}
		ended, more = p.ended, p.more
		return s.record(ctx, tx, event)
	})
	return ended, more, err
}

// workspacesOfClient returns the workspaces in which a client that belongs to none has grants that were not revoked, in
// the order in which transactions lock them.
func workspacesOfClient(ctx context.Context, tx pgx.Tx, id uuid.UUID) ([]uuid.UUID, error) {
	rows, err := tx.Query(ctx, `select distinct g.tenant_id from account.grants g
		where g.client_id = $1 and g.state <> 'revoked' order by 1`, id)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
}

// grantFilter is the SQL condition on grants g for an admin.GrantFilter.
const grantFilter = `(@user::uuid is null or g.user_id = @user) and (@client::uuid is null or g.client_id = @client)
  and (@tenant::uuid is null or g.tenant_id = @tenant) and (@before::timestamptz is null or g.created_at < @before)`

func grantFilterArgs(f admin.GrantFilter) pgx.NamedArgs {
	return pgx.NamedArgs{"user": f.User, "client": f.Client, "tenant": f.WorkspaceID, "before": f.IssuedBefore}
}

// EveryGrant lists the latest grants that match the filter, up to limit.
func (s *Store) EveryGrant(ctx context.Context, filter admin.GrantFilter, limit int) ([]admin.Grant, error) {
	args := grantFilterArgs(filter)
	args["limit"] = limit
	return listed(ctx, s, "list grants", `
select g.id, g.kind, g.client_id, c.name, g.user_id, u.email, g.tenant_id, g.permissions,
  g.state, g.state <> 'revoked' and g.ends_at <= now(),
  g.created_at, g.last_used_at, g.ends_at, g.revoked_at, coalesce(g.revoke_reason, '')
from account.grants g join account.oauth_clients c on c.id = g.client_id join account.users u on u.id = g.user_id
where `+grantFilter+` order by g.created_at desc, g.id desc limit @limit`,
		args, func(row pgx.CollectableRow) (g admin.Grant, err error) {
			var over bool
			err = row.Scan(
				&g.ID,
				&g.Kind,
				&g.ClientID,
				&g.Client,
				&g.UserID,
				&g.Email,
				&g.WorkspaceID,
				&g.Permissions,
				&g.State,
				&over,
				&g.Created,
				&g.LastUsed,
				&g.Ends,
				&g.RevokedAt,
				&g.Reason,
			)
			if over {
				g.State = "ended by time"
			}
			return g, err
		})
}

// EndGrant revokes a grant with its event, or returns admin.ErrNoGrant. It returns false if the grant was
// already revoked.
func (s *Store) EndGrant(ctx context.Context, id uuid.UUID, actor string) (grant.Grant, bool, error) {
	var found grant.Grant
	revoked := false
	err := s.administer(ctx, "end grant", func(tx pgx.Tx) error {
		var row grantRow
		err := tx.QueryRow(ctx, `select `+grantColumns+` from account.grants g where g.id = $1`, id).
			Scan(row.targets()...)
		if errors.Is(err, pgx.ErrNoRows) {
			return admin.ErrNoGrant
		}
		if err != nil {
			return err
		}
		found = *row.grant()
		ended, err := revokeIn(ctx, tx, []uuid.UUID{found.WorkspaceID}, `g.id = @id`, pgx.NamedArgs{"id": id},
			grant.ByAdmin, actor)
		if revoked = len(ended) == 1; revoked {
			found = ended[0]
		}
		return err
	})
	return found, revoked, err
}

// nextGrantsSQL reads the next grants that match the filter, including ended grants. If it skipped ended grants, it
// could read up to a million of them and exceed the statement timeout.
const nextGrantsSQL = `select g.tenant_id, g.id, g.state <> 'revoked' and g.ends_at > now() from account.grants g
  where (g.tenant_id, g.id) > (@after_tenant, @after) and ` + grantFilter + `
  order by g.tenant_id, g.id limit @at_once`

// EndGrants reads the next endAtOnce grants after a key that match the filter. It revokes those that have not ended and
// records an event for each. It returns the key of the last grant that it read, or the zero key if there was none.
func (s *Store) EndGrants(
	ctx context.Context,
	filter admin.GrantFilter,
	after grant.Key,
	actor string,
) (ended []grant.Grant, next grant.Key, err error) {
	err = s.administer(ctx, "end grants", func(tx pgx.Tx) error {
		args := grantFilterArgs(filter)
		args["at_once"], args["after_tenant"], args["after"] = endAtOnce, after.WorkspaceID, after.ID
		rows, err := tx.Query(ctx, nextGrantsSQL, args)
		if err != nil {
			return err
		}
		var ids []uuid.UUID
		var live bool
		_, err = pgx.ForEachRow(rows, []any{&next.WorkspaceID, &next.ID, &live}, func() error {
			if live {
				ids = append(ids, next.ID)
			}
			return nil
		})
		if err != nil || len(ids) == 0 {
			return err
		}
		ended, err = revokeWhere(ctx, tx, `g.id = any (@ids)`, pgx.NamedArgs{"ids": ids}, grant.ByAdmin, actor)
		return err
	})
	return ended, next, err
}
