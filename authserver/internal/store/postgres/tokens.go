package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

const tokenColumns = `p.id, p.user_id, p.tenant_id as workspace_id, p.name, p.permissions, p.created_at as created,
  p.expires_at as expires, p.revoked_at, coalesce(p.revoke_reason, '') as reason, u.used_at as last_used, p.replaces_id`

// tokenRows are the tokens p with their uses u.
const tokenRows = `account.personal_access_tokens p
  left join account.token_uses u on u.tenant_id = p.tenant_id and u.token_id = p.id`

// Tokens lists a user's personal access tokens of one workspace, newest first: all active tokens, and those
// that ended within the last 30 days.
func (g *Grants) Tokens(ctx context.Context, user, workspaceID uuid.UUID) ([]pat.Token, error) {
	scan := withPermissions(func(t *pat.Token) *perm.Set { return &t.Permissions })
	return list(ctx, g.db, "list tokens", scan, `select `+tokenColumns+` from `+tokenRows+`
		where p.user_id = $1 and p.tenant_id = $2 and least(p.revoked_at, p.expires_at) > now() - interval '30 days'
			and (p.revoked_at is not null or `+tokenNotEndingSQL+`)
		order by p.created_at desc, p.id desc limit 500`, user, workspaceID)
}

// ActiveTokens lists a user's active personal access tokens in every workspace, newest first.
func (g *Grants) ActiveTokens(ctx context.Context, user uuid.UUID) ([]pat.TokenInWorkspace, error) {
	scan := withPermissions(func(t *pat.TokenInWorkspace) *perm.Set { return &t.Permissions })
	return list(ctx, g.db, "list active tokens", scan, `
		select t.name as workspace, `+tokenColumns+` from `+tokenRows+`
		join account.tenants t on t.id = p.tenant_id
		where p.user_id = $1 and p.revoked_at is null and p.expires_at > now() and `+tokenNotEndingSQL+`
		order by p.created_at desc, p.id desc limit 500`, user)
}

// SaveToken stores a token with its audit event in one transaction. It returns false if a token with this
// identifier already exists. If the token replaces another, that one must still be active; otherwise the
// error is audit.ErrNotAuthorized.
func (g *Grants) SaveToken(ctx context.Context, t pat.Token, hash []byte, event audit.Event) (bool, error) {
	return g.changeIf(ctx, "save token", &event, func(tx *transaction) {
		if t.ReplacesID != nil {
			tx.require(tx.has(`select true from account.personal_access_tokens p
				where id = $1 and user_id = $2 and tenant_id = $3 and revoked_at is null and expires_at > now()
					and `+tokenNotEndingSQL+` for share of p`, *t.ReplacesID, t.UserID, t.WorkspaceID),
				audit.ErrNotAuthorized)
		}
		tx.change(`
insert into account.personal_access_tokens (id, hash, user_id, tenant_id, name, permissions, expires_at, replaces_id)
values (@id, @hash, @user, @tenant, @name, @permissions, @expires, @replaces)
on conflict (id) do nothing`, pgx.NamedArgs{"id": t.ID, "hash": hash, "user": t.UserID, "tenant": t.WorkspaceID,
			"name": t.Name, "permissions": t.Permissions.Strings(), "expires": t.Expires, "replaces": t.ReplacesID})
	})
}

// RevokePresentedToken revokes the active token with this hash for pat.ByHolder, completes the event and queues a mail
// to the owner of the token, in one transaction. If there is no such token, it does nothing.
func (g *Grants) RevokePresentedToken(ctx context.Context, hash []byte, event audit.Event) error {
	return g.atomically(ctx, "revoke presented token", func(tx *transaction) {
		var id, user, workspaceID uuid.UUID
		var name, workspace string
		if !tx.row(`update account.personal_access_tokens p
			set revoked_at = now(), revoke_reason = $2 from account.tenants t
			where t.id = p.tenant_id and p.hash = $1 and p.revoked_at is null and p.expires_at > now()
			returning p.id, p.user_id, p.tenant_id, p.name, t.name`, hash, pat.ByHolder).
			find(&id, &user, &workspaceID, &name, &workspace) {
			return
		}
		one := event // the transaction may be repeated
		one.WorkspaceID, one.UserID, one.Subject = &workspaceID, &user, "token:"+id.String()
		one.Detail = map[string]any{"name": name, "reason": pat.ByHolder}
		tx.record(one)
		tx.mail(user, mail.TokenRevoked, mail.Data{Token: name, Workspace: workspace})
	})
}

// RevokeToken revokes a token of the user that is not revoked yet with its audit event. It returns false if there is no
// such token.
func (g *Grants) RevokeToken(
	ctx context.Context, user, workspaceID, id uuid.UUID, event audit.Event,
) (bool, error) {
	return g.changeIf(ctx, "revoke token", &event, func(tx *transaction) {
		tx.change(`update account.personal_access_tokens set revoked_at = now(), revoke_reason = $4
			where id = $1 and user_id = $2 and tenant_id = $3 and revoked_at is null`,
			id, user, workspaceID, pat.ByUser)
	})
}

// maxMailed is the maximum number of tokens in one transaction.
const maxMailed = 200

// expiringSQL marks active tokens that expire within 7 days, or within 1 day if they were created for about a week.
const expiringSQL = `
with expiring as (
  select id, now() as at from account.personal_access_tokens
  where expiry_mailed_at is null and revoked_at is null and expires_at > now()
    and expires_at <= now() + interval '7 days'
    and (expires_at <= now() + interval '1 day' or expires_at - created_at > interval '8 days')
  order by expires_at limit $1 for update skip locked
)
update account.personal_access_tokens p set expiry_mailed_at = expiring.at from expiring, account.tenants t
where p.id = expiring.id and t.id = p.tenant_id
returning p.user_id, p.name, t.name, p.expires_at`

// MailExpiringTokens queues a mail about each personal access token that is about to expire, once for each token. Users
// who are disabled or turned these mails off get none.
func (g *Grants) MailExpiringTokens(ctx context.Context) error {
	type expiring struct {
		User             uuid.UUID
		Token, Workspace string
		Ends             time.Time
	}
	for {
		var marked []expiring
		err := g.atomically(ctx, "mail expiring tokens", func(tx *transaction) {
			marked = rowsOf(tx, pgx.RowToStructByPos[expiring], expiringSQL, maxMailed)
			for _, e := range marked {
				tx.mailMessage(e.User, mail.Message{
					Kind:    mail.TokenExpiring,
					Data:    mail.Data{Token: e.Token, Workspace: e.Workspace, Ends: e.Ends},
					Expires: e.Ends, // after that, the mail would be wrong
				})
			}
		})
		if err != nil || len(marked) < maxMailed {
			return err
		}
	}
}
