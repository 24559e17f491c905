package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

const tokenColumns = `p.id, p.user_id, p.tenant_id, p.name, p.permissions, p.created_at, p.expires_at, p.revoked_at,
  coalesce(p.revoke_reason, ''), u.used_at, p.replaces_id`

// tokenRows are the tokens p with their uses u.
const tokenRows = `account.personal_access_tokens p
  left join account.token_uses u on u.tenant_id = p.tenant_id and u.token_id = p.id`

// Tokens lists a user's personal access tokens of one workspace, newest first: all active tokens, and those
// that ended within the last 30 days.
func (s *Store) Tokens(ctx context.Context, user, workspaceID uuid.UUID) ([]pat.Token, error) {
	return list(ctx, s, "list tokens", scanToken, `select `+tokenColumns+` from `+tokenRows+`
		where p.user_id = $1 and p.tenant_id = $2 and least(p.revoked_at, p.expires_at) > now() - interval '30 days'
			and (p.revoked_at is not null or `+tokenNotEndingSQL+`)
		order by p.created_at desc, p.id desc limit 500`, user, workspaceID)
}

// ActiveTokens lists a user's active personal access tokens in every workspace, newest first.
func (s *Store) ActiveTokens(ctx context.Context, user uuid.UUID) ([]pat.TokenInWorkspace, error) {
	scan := func(row pgx.CollectableRow) (t pat.TokenInWorkspace, err error) {
		t.Token, err = scanTokenAfter(row, &t.Workspace)
		return t, err
	}
	return list(ctx, s, "list active tokens", scan, `select t.name, `+tokenColumns+` from `+tokenRows+`
		join account.tenants t on t.id = p.tenant_id
		where p.user_id = $1 and p.revoked_at is null and p.expires_at > now() and `+tokenNotEndingSQL+`
		order by p.created_at desc, p.id desc limit 500`, user)
}

func scanToken(row pgx.CollectableRow) (pat.Token, error) { return scanTokenAfter(row) }

// scanTokenAfter reads a token whose columns follow others.
func scanTokenAfter(row pgx.CollectableRow, before ...any) (pat.Token, error) {
	var t pat.Token
	var permissions []string
	err := row.Scan(append(before, &t.ID, &t.UserID, &t.WorkspaceID, &t.Name, &permissions, &t.Created, &t.Expires,
		&t.RevokedAt, &t.Reason, &t.LastUsed, &t.ReplacesID)...)
	t.Permissions = perm.FromStrings(permissions)
	return t, err
}

// SaveToken stores a token with its audit event in one transaction. It returns false if a token with this
// identifier already exists. If the token replaces another, that one must still be active; otherwise the
// error is audit.ErrNotAuthorized.
func (s *Store) SaveToken(ctx context.Context, t pat.Token, hash []byte, event audit.Event) (bool, error) {
	return s.changeIf(ctx, "save token", &event, func(tx pgx.Tx) error {
		if err := stillReplaceable(ctx, tx, t); err != nil {
			return err
		}
		return changed(tx.Exec(ctx, `
insert into account.personal_access_tokens (id, hash, user_id, tenant_id, name, permissions, expires_at, replaces_id)
values (@id, @hash, @user, @tenant, @name, @permissions, @expires, @replaces)
on conflict (id) do nothing`, pgx.NamedArgs{"id": t.ID, "hash": hash, "user": t.UserID, "tenant": t.WorkspaceID,
			"name": t.Name, "permissions": t.Permissions.Strings(), "expires": t.Expires, "replaces": t.ReplacesID}))
	})
}

// stillReplaceable locks the token that t replaces, or returns audit.ErrNotAuthorized if it has ended.
func stillReplaceable(ctx context.Context, tx pgx.Tx, t pat.Token) error {
	if t.ReplacesID == nil {
		return nil
	}
	active, err := found(tx.QueryRow(ctx, `select true from account.personal_access_tokens p
		where id = $1 and user_id = $2 and tenant_id = $3 and revoked_at is null and expires_at > now()
			and `+tokenNotEndingSQL+` for share of p`, *t.ReplacesID, t.UserID, t.WorkspaceID))
	if err == nil && !active {
		err = audit.ErrNotAuthorized
	}
	return err
}

// RevokePresentedToken revokes the active token with this hash for pat.ByHolder, completes the event and queues a mail
// to the owner of the token, in one transaction. If there is no such token, it does nothing.
func (s *Store) RevokePresentedToken(ctx context.Context, hash []byte, event audit.Event) error {
	return s.atomically(ctx, "revoke presented token", func(tx pgx.Tx) error {
		var id, user, workspaceID uuid.UUID
		var name, workspace string
		err := tx.QueryRow(ctx, `update account.personal_access_tokens p
			set revoked_at = now(), revoke_reason = $2 from account.tenants t
			where t.id = p.tenant_id and p.hash = $1 and p.revoked_at is null and p.expires_at > now()
			returning p.id, p.user_id, p.tenant_id, p.name, t.name`, hash, pat.ByHolder).
			Scan(&id, &user, &workspaceID, &name, &workspace)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		one := event // the transaction may be repeated
		one.WorkspaceID, one.UserID, one.Subject = &workspaceID, &user, "token:"+id.String()
		one.Detail = map[string]any{"name": name, "reason": pat.ByHolder}
		if err := s.record(ctx, tx, one); err != nil {
			return err
		}
		data := mail.Data{Token: name, Workspace: workspace}
		return s.queueMail(ctx, tx, user, mail.Message{Kind: mail.TokenRevoked, Data: data})
	})
}

// RevokeToken revokes a token of the user that is not revoked yet with its audit event. It returns false if there is no
// such token.
func (s *Store) RevokeToken(
	ctx context.Context, user, workspaceID, id uuid.UUID, reason string, event audit.Event,
) (bool, error) {
	return s.changeIf(ctx, "revoke token", &event, func(tx pgx.Tx) error {
		return changed(tx.Exec(ctx, `update account.personal_access_tokens set revoked_at = now(), revoke_reason = $4
			where id = $1 and user_id = $2 and tenant_id = $3 and revoked_at is null`, id, user, workspaceID, reason))
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
func (s *Store) MailExpiringTokens(ctx context.Context) error {
	for {
		marked := 0
		err := s.atomically(ctx, "mail expiring tokens", func(tx pgx.Tx) (err error) {
			marked, err = s.mailExpiring(ctx, tx)
			return err
		})
		if err != nil || marked < maxMailed {
			return err
		}
	}
}

func (s *Store) mailExpiring(ctx context.Context, tx pgx.Tx) (int, error) {
	type expiring struct {
		User             uuid.UUID
		Token, Workspace string
		Ends             time.Time
	}
	found, err := collect(ctx, tx, pgx.RowToStructByPos[expiring], expiringSQL, maxMailed)
	if err != nil {
		return 0, err
	}
	for _, e := range found {
		err := s.queueMail(ctx, tx, e.User, mail.Message{
			Kind:    mail.TokenExpiring,
			Data:    mail.Data{Token: e.Token, Workspace: e.Workspace, Ends: e.Ends},
			Expires: e.Ends, // after that, the mail would be wrong
		})
		if err != nil {
			return 0, err
		}
	}
	return len(found), nil
}
