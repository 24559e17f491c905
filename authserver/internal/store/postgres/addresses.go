package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

var _ useraccount.EmailChanges = (*Store)(nil)

// BeginEmailChange stores a request to change an address, replaces an open one, records the event and mails both
// addresses. A repeated call stores one request. It returns useraccount.ErrTooManyChanges or audit.ErrNotAuthorized.
func (s *Store) BeginEmailChange(ctx context.Context, r useraccount.EmailRequest, event audit.Event) error {
	_, err := s.changeFactors(ctx, "begin change of address", &event, func(tx pgx.Tx) error {
		// One at a time for each address, whose requests are limited.
		_, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended('address ' || $1, 0))`, r.Email)
		if err != nil {
			return err
		}
		var repeated, taken bool
		var own, others int
		err = tx.QueryRow(ctx, `
select exists (select from account.email_changes where id = $1),
  exists (select from account.users where email = any($4) and id <> $2),
  (select count(*) from account.email_changes where user_id = $2 and created_at > now() - interval '1 day'),
  (select count(distinct user_id) from account.email_changes
    where new_email = $3 and user_id <> $2 and created_at > now() - interval '1 day')`,
			r.ID, r.UserID, r.Email, spelling.Spellings(r.Email)).Scan(&repeated, &taken, &own, &others)
		if err != nil {
			return err
		}
		if repeated {
			return errNoEvent
		}
		if own >= useraccount.MaxEmailChanges || others >= useraccount.MaxEmailChangesToAddress {
			return useraccount.ErrTooManyChanges
		}
		if err := endEmailChange(ctx, tx, r.UserID, "replaced"); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `insert into account.email_changes
			(id, user_id, old_email, new_email, old_token_hash, new_token_hash, expires_at)
			select $1, id, email, $3, $4, $5, now() + $6::interval from account.users where id = $2`, r.ID, r.UserID,
			r.Email, credential.Hash(r.OldToken.Reveal()), credential.Hash(r.NewToken.Reveal()),
			useraccount.EmailChangeLife)
		if err != nil {
			return err
		}
		return s.mailEmailChange(ctx, tx, r, taken)
	})
	return err
}

// mailEmailChange mails a link to the old address and one to the new. If the new address is taken, it gets no link.
func (s *Store) mailEmailChange(ctx context.Context, tx pgx.Tx, r useraccount.EmailRequest, taken bool) error {
	if s.mails == nil {
		return nil
	}
	m := mail.Message{
		Kind:  mail.EmailChangeOld,
		Token: r.OldToken,
		Data:  mail.Data{Email: r.Email, Device: r.Device, Network: r.Network},
	}
	err := tx.QueryRow(ctx, `select expires_at from account.email_changes where id = $1`, r.ID).Scan(&m.Expires)
	if err != nil {
		return err
	}
	if err := s.queueMail(ctx, tx, r.UserID, m); err != nil {
		return err
	}
	other := mail.Message{Kind: mail.EmailChangeNew, Address: r.Email, Token: r.NewToken, Expires: m.Expires}
	if taken {
		other.Kind, other.Token = mail.EmailTaken, ""
	}
	return s.mails.Add(ctx, tx, other)
}

// endEmailChange ends the open request of a user, if there is one.
func endEmailChange(ctx context.Context, tx pgx.Tx, user uuid.UUID, outcome string) error {
	_, err := tx.Exec(ctx, `update account.email_changes set ended_at = now(), outcome = $2
		where user_id = $1 and ended_at is null`, user, outcome)
	return err
}

// emailChangeSQL selects valid requests. Any other change of the address ends a request.
const emailChangeSQL = `
select c.old_email as old, c.new_email as new, c.new_token_hash = $1 as to_new,
  c.old_confirmed_at is not null as old_confirmed, c.new_confirmed_at is not null as new_confirmed,
  c.expires_at as expires
from account.email_changes c join account.users u on u.id = c.user_id and u.disabled_at is null
  and u.email = c.old_email
where c.ended_at is null and c.expires_at > now() and `

const byToken = `(c.old_token_hash = $1 or c.new_token_hash = $1)`

var scanEmailChange = pgx.RowToStructByName[useraccount.EmailChange]

// EmailChangeLink reads the request of a valid link, or returns useraccount.ErrLinkInvalid.
func (s *Store) EmailChangeLink(ctx context.Context, tokenHash []byte) (useraccount.EmailChange, error) {
	c, found, err := one(ctx, s, "read change of address", scanEmailChange, emailChangeSQL+byToken, tokenHash)
	if err == nil && !found {
		err = useraccount.ErrLinkInvalid
	}
	return c, err
}

// OpenEmailChange reads the open request of a user, or returns nil.
func (s *Store) OpenEmailChange(ctx context.Context, user uuid.UUID) (*useraccount.EmailChange, error) {
	c, found, err := one(ctx, s, "read change of address", scanEmailChange, emailChangeSQL+`c.user_id = $2`,
		[]byte{}, user)
	if err != nil || !found {
		return nil, err
	}
	return &c, nil
}

// lockEmailChange locks the user of a valid link and then the request. It locks the user "for update", because a new
// address changes a key.
func lockEmailChange(
	ctx context.Context, tx pgx.Tx, tokenHash []byte,
) (user uuid.UUID, c useraccount.EmailChange, err error) {
	err = tx.QueryRow(ctx, `select user_id from account.email_changes c where `+byToken, tokenHash).Scan(&user)
	if err == nil {
		_, err = tx.Exec(ctx, `select from account.users where id = $1 for update`, user)
	}
	if err == nil {
		c, err = collectOne(ctx, tx, scanEmailChange, emailChangeSQL+byToken+` for update of c`, tokenHash)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		err = useraccount.ErrLinkInvalid
	}
	return user, c, err
}

// ConfirmEmailChange confirms a link. If the other link is confirmed, it changes the address, records the event, ends
// the user's links to set a password, since they were sent to the old address, and returns true. It returns
// useraccount.ErrLinkInvalid or ErrEmailTaken.
func (s *Store) ConfirmEmailChange(
	ctx context.Context, tokenHash []byte, event audit.Event,
) (c useraccount.EmailChange, changed bool, err error) {
	taken := false
	err = s.atomically(ctx, "confirm change of address", func(tx pgx.Tx) error {
		changed, taken = false, false
		user, found, err := lockEmailChange(ctx, tx, tokenHash)
		if err != nil {
			return err
		}
		c = found
		confirm := `update account.email_changes c set old_confirmed_at = now() where `
		if c.ToNew {
			confirm = `update account.email_changes c set new_confirmed_at = now() where `
		}
		_, err = tx.Exec(ctx, confirm+byToken, tokenHash)
		if err != nil || c.ToNew && !c.OldConfirmed || !c.ToNew && !c.NewConfirmed {
			return err
		}
		taken, err = emailTaken(ctx, tx, user, c.New)
		if err != nil {
			return err
		}
		if taken {
			return endEmailChange(ctx, tx, user, "taken")
		}
		if err := endEmailChange(ctx, tx, user, "changed"); err != nil {
			return err
		}
		changed = true
		event.UserID, event.Actor, event.Subject = &user, "user:"+user.String(), "user:"+user.String()
		if err := s.changeEmail(ctx, tx, user, c.New, useraccount.ByEmailChange); err != nil {
			return err
		}
		return s.record(ctx, tx, event)
	})
	if err == nil && taken {
		err = useraccount.ErrEmailTaken
	}
	return c, changed && err == nil, err
}

func emailTaken(ctx context.Context, tx pgx.Tx, user uuid.UUID, email string) (bool, error) {
	return found(tx.QueryRow(ctx, `select true from account.users where email = any($2) and id <> $1`, user,
		spelling.Spellings(email)))
}

// changeEmail replaces the address of a locked user and mails both addresses. The links of a change
// prove the new address. An operator's change does not: it does not tell who created the account.
func (s *Store) changeEmail(ctx context.Context, tx pgx.Tx, user uuid.UUID, email string, by useraccount.Proof) error {
	changed := mail.Message{Kind: mail.EmailChanged, Data: mail.Data{
		Email:    email,
		Operator: by == useraccount.ByOperator,
	}}
	if err := s.queueMail(ctx, tx, user, changed); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `update account.users set email = $2,
			email_proven_at = now() + case when $4 or email_proven_at is not null then interval '0' end,
			email_proven_by = case when $4 or email_proven_at is not null then $3 end
		where id = $1`, user, spelling.Key(email), by, by == useraccount.ByEmailChange)
	if violates(err, uniqueViolation, "users") { // another user took it meanwhile
		return useraccount.ErrEmailTaken
	}
	if err != nil {
		return err
	}
	if err := s.queueMail(ctx, tx, user, changed); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `delete from account.password_resets where user_id = $1`, user)
	return err
}

// StopEmailChange ends the request of a link and records the event, or returns useraccount.ErrLinkInvalid.
func (s *Store) StopEmailChange(ctx context.Context, tokenHash []byte, event audit.Event) error {
	return s.atomically(ctx, "stop change of address", func(tx pgx.Tx) error {
		user, c, err := lockEmailChange(ctx, tx, tokenHash)
		if err != nil {
			return err
		}
		if err := endEmailChange(ctx, tx, user, "stopped"); err != nil {
			return err
		}
		event.UserID, event.Subject = &user, "user:"+user.String()
		event.Detail["by"] = "old"
		if c.ToNew {
			event.Detail["by"] = "new"
		}
		return s.record(ctx, tx, event)
	})
}

// SetEmail replaces the address of a user for an operator, records the event, and ends an open request of the user. It
// returns admin.ErrNoUser or useraccount.ErrEmailTaken.
func (s *Store) SetEmail(ctx context.Context, user uuid.UUID, email string, event audit.Event) error {
	return s.change(ctx, "set address", &event, func(tx pgx.Tx) error {
		exists, err := found(tx.QueryRow(ctx, `select true from account.users where id = $1 and deleted_at is null
			for update`, user))
		if err == nil && !exists {
			err = admin.ErrNoUser
		}
		if err == nil {
			err = endEmailChange(ctx, tx, user, "replaced")
		}
		if err != nil {
			return err
		}
		if taken, err := emailTaken(ctx, tx, user, email); err != nil || taken {
			return cmp.Or(err, useraccount.ErrEmailTaken)
		}
		return s.changeEmail(ctx, tx, user, email, useraccount.ByOperator)
	})
}

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
	if _, err := tx.Exec(ctx, `update account.users set password_hash = null, email_proven_at = now(),
		email_proven_by = $2 where id = $1`, user, by); err != nil {
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
	type reader struct {
		ID                             uuid.UUID
		WorkspaceID, Workspace, Member string
	}
	readers, err := collect(ctx, tx, pgx.RowToStructByPos[reader], `
select o.user_id, t.id::text, t.name, u.name from account.memberships m
join account.memberships o on o.tenant_id = m.tenant_id and o.user_id <> m.user_id and $2 = any(o.permissions)
join account.tenants t on t.id = m.tenant_id join account.users u on u.id = m.user_id
where m.user_id = $1 order by t.id, o.user_id`, user, string(perm.AccountWriteMembers))
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
) (useraccount.EndedCredentials, error) {
	workspaces, err := collect(ctx, tx, pgx.RowTo[uuid.UUID], `
select g.tenant_id from account.grants g where g.user_id = $1
union select p.tenant_id from account.personal_access_tokens p where p.user_id = $1 order by 1`, user)
	if err != nil {
		return useraccount.EndedCredentials{}, fmt.Errorf("find workspaces: %w", err)
	}
	p, err := ending{user: &user, keep: keep, reason: reason, actor: actor}.beginIn(ctx, tx, workspaces)
	return p.credentials(), err
}

// ConfirmEmail proves the address of a user by an operator's word, with the event, and ends nothing. It returns false
// if the address was proven already, or admin.ErrNoUser.
func (s *Store) ConfirmEmail(ctx context.Context, user uuid.UUID, event audit.Event) (confirmed bool, err error) {
	return s.changeIf(ctx, "confirm address", &event, func(tx pgx.Tx) error {
		if err := holdUser(ctx, tx, user, new(bool)); err != nil {
			return err
		}
		return changed(tx.Exec(ctx, `update account.users set email_proven_at = now(), email_proven_by = $2
			where id = $1 and email_proven_at is null`, user, useraccount.ByOperator))
	})
}
