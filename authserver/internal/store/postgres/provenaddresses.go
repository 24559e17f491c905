package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/mail"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/perm"
)

// proven is the condition that the address of a user u was proven. Without it, nothing that the account has is known to
// be the user's: what proves the address takes the account over, whatever second factor it has.
const proven = `(u.email_proven_at is not null)`

// isProven reports whether the address of a user was proven. The caller's transaction must hold the user's row.
func isProven(ctx context.Context, tx pgx.Tx, user uuid.UUID) (bool, error) {
	return found(tx.QueryRow(ctx, `select true from account.users u where u.id = $1 and `+proven, user))
}

// takeOver proves the address of a user whose account another person may have created: it ends everything that gives
// access to the account, except the linked account at the issuer keep, records the event and mails the user and the
// members who can manage members of the user's workspaces. The caller's transaction must hold the user's row.
func (s *Store) takeOver(
	ctx context.Context, tx pgx.Tx, user uuid.UUID, by useraccount.Proof, keep string, event audit.Event,
) (*useraccount.Takeover, error) {
	if err := sequentially(ctx, tx); err != nil {
		return nil, err
	}
	methods, err := readAllMethods(ctx, tx, user)
	if err != nil {
		return nil, err
	}
	methods = slices.DeleteFunc(methods, func(m admin.SignInMethod) bool {
		return m.Kind == admin.LinkedAccount && m.ID == keep
	})
	if err := s.removeSignInMethods(ctx, tx, user, methods, event.Actor); err != nil {
		return nil, err
	}
	if err := endSignIns(ctx, tx, user); err != nil {
		return nil, err
	}
	for _, end := range []string{
		`update account.password_resets set used_at = now() where user_id = $1 and used_at is null`,
		`update account.email_changes set ended_at = now(), outcome = 'replaced'
			where user_id = $1 and ended_at is null`,
		`delete from account.idempotency_keys where user_id = $1`,
		`delete from account.webhooks where user_id = $1`, // they would send what this user may read
		`update account.invitations set ended_at = now(), outcome = 'withdrawn'
			where invited_by = $1 and ended_at is null`,
	} {
		if _, err := tx.Exec(ctx, end, user); err != nil {
			return nil, err
		}
	}
	over := &useraccount.Takeover{Methods: len(methods)}
	over.EndedCredentials, err = endCredentials(ctx, tx, user, nil, grant.AddressProven, event.Actor)
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, `update account.users set password_hash = null, email_proven_at = now(), email_proven_by = $2
		where id = $1`, user, by)
	if err != nil {
		return nil, err
	}
	event.Action, event.Subject, event.UserID = audit.UserEmailProven, "user:"+user.String(), &user
	event.Detail = map[string]any{
		"by":      by,
		"methods": over.Methods,
		"tokens":  over.Tokens,
		"grants":  len(over.Grants),
	}
	if over.More {
		event.Detail["more"] = true
	}
	if err := s.record(ctx, tx, event); err != nil {
		return nil, err
	}
	data := mail.Data{PasswordSet: by != useraccount.ByUpstream}
	if err := s.queueMail(ctx, tx, user, mail.Message{Kind: mail.AddressProven, Data: data}); err != nil {
		return nil, err
	}
	return over, s.mailTakeover(ctx, tx, user)
}

// mailTakeover mails the members who can manage members of a user's workspaces that the account was taken over.
func (s *Store) mailTakeover(ctx context.Context, tx pgx.Tx, user uuid.UUID) error {
	if s.mails == nil {
		return nil
	}
	rows, err := tx.Query(ctx, `select o.user_id, t.id::text, t.name, u.name from account.memberships m
		join account.memberships o on o.tenant_id = m.tenant_id and o.user_id <> m.user_id and $2 = any(o.permissions)
		join account.tenants t on t.id = m.tenant_id join account.users u on u.id = m.user_id
		where m.user_id = $1 order by t.id, o.user_id`, user, string(perm.AccountWriteMembers))
	if err != nil {
		return err
	}
	type reader struct {
		ID                             uuid.UUID
		WorkspaceID, Workspace, Member string
	}
	readers, err := pgx.CollectRows(rows, pgx.RowToStructByPos[reader])
	for i := 0; err == nil && i < len(readers); i++ {
		r := readers[i]
		err = s.queueMail(ctx, tx, r.ID, mail.Message{Kind: mail.MemberAddressProven, Data: mail.Data{
			Person:    r.Member,
			Workspace: r.Workspace,
			Path:      "/settings/members/member?tenant=" + r.WorkspaceID + "&id=" + user.String(),
		}})
	}
	return err
}

// endCredentials ends the grants and personal access tokens of a user in all workspaces, except those whose ids are in
// keep, with an event for each. It returns those that it revoked, so that the caller can update Redis; EndNext revokes
// the others.
func endCredentials(
	ctx context.Context, tx pgx.Tx, user uuid.UUID, keep []uuid.UUID, reason grant.Reason, actor string,
) (ended useraccount.EndedCredentials, err error) {
	rows, err := tx.Query(ctx, `select g.tenant_id from account.grants g where g.user_id = $1
		union select p.tenant_id from account.personal_access_tokens p where p.user_id = $1 order by 1`, user)
	if err != nil {
		return ended, fmt.Errorf("find workspaces: %w", err)
	}
	workspaces, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return ended, fmt.Errorf("find workspaces: %w", err)
	}
	p, err := ending{user: &user, keep: keep, reason: reason, actor: actor}.beginIn(ctx, tx, workspaces)
	for _, g := range p.ended {
		ended.Grants = append(ended.Grants, useraccount.EndedGrant{ID: g.ID, Ends: g.Ends})
	}
	ended.Tokens, ended.More = p.tokens, p.more
	return ended, err
}

// ConfirmEmail proves the address of a user by an operator's word, with the event, and ends nothing. It returns false
// if the address was proven already, or admin.ErrNoUser.
func (s *Store) ConfirmEmail(ctx context.Context, user uuid.UUID, event audit.Event) (confirmed bool, err error) {
	err = s.administer(ctx, "confirm address", func(tx pgx.Tx) error {
		if err := holdUser(ctx, tx, user, new(bool)); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `update account.users set email_proven_at = now(), email_proven_by = $2
			where id = $1 and email_proven_at is null`, user, useraccount.ByOperator)
		if confirmed = err == nil && tag.RowsAffected() == 1; !confirmed {
			return err
		}
		return s.record(ctx, tx, event)
	})
	return confirmed && err == nil, err
}
