package postgres

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/mail"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/spelling"
)

var _ useraccount.EmailChanges = (*Store)(nil)

// BeginEmailChange stores a request to change an address, replaces an open one, records the event and mails both
// addresses. A repeated call stores one request. It returns useraccount.ErrTooManyChanges or audit.ErrNotAuthorized.
func (s *Store) BeginEmailChange(ctx context.Context, r useraccount.EmailRequest, event audit.Event) error {
	return s.changeFactors(ctx, "begin change of address", event, func(tx pgx.Tx) error {
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
		if err != nil || repeated {
			return err
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
		if err == nil {
			err = s.mailEmailChange(ctx, tx, r, taken)
		}
		if err != nil {
			return err
		}
		return s.record(ctx, tx, event)
	})
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
select c.old_email, c.new_email, c.new_token_hash = $1, c.old_confirmed_at is not null, c.new_confirmed_at is not null,
  c.expires_at
from account.email_changes c join account.users u on u.id = c.user_id and u.disabled_at is null
  and u.email = c.old_email
where c.ended_at is null and c.expires_at > now() and `

const byToken = `(c.old_token_hash = $1 or c.new_token_hash = $1)`

func emailChangeTargets(c *useraccount.EmailChange) []any {
	return []any{&c.Old, &c.New, &c.ToNew, &c.OldConfirmed, &c.NewConfirmed, &c.Expires}
}

// EmailChangeLink reads the request of a valid link, or returns useraccount.ErrLinkInvalid.
func (s *Store) EmailChangeLink(ctx context.Context, tokenHash []byte) (useraccount.EmailChange, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	var c useraccount.EmailChange
	err := s.pool.QueryRow(ctx, emailChangeSQL+byToken, tokenHash).Scan(emailChangeTargets(&c)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return c, useraccount.ErrLinkInvalid
	}
	return c, unavailable("read change of address", err)
}

// OpenEmailChange reads the open request of a user, or returns nil.
func (s *Store) OpenEmailChange(ctx context.Context, user uuid.UUID) (*useraccount.EmailChange, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	var c useraccount.EmailChange
	err := s.pool.QueryRow(ctx, emailChangeSQL+`c.user_id = $2`, []byte{}, user).Scan(emailChangeTargets(&c)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &c, unavailable("read change of address", err)
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
		err = tx.QueryRow(ctx, emailChangeSQL+byToken+` for update of c`, tokenHash).Scan(emailChangeTargets(&c)...)
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
		return s.changeEmail(ctx, tx, user, c.New, useraccount.ByEmailChange, event)
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

// changeEmail replaces the address of a locked user, records the event and mails both addresses. The links of a change
// prove the new address. An operator's change does not: it does not tell who created the account.
func (s *Store) changeEmail(
	ctx context.Context, tx pgx.Tx, user uuid.UUID, email string, by useraccount.Proof, event audit.Event,
) error {
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
	if _, err := tx.Exec(ctx, `delete from account.password_resets where user_id = $1`, user); err != nil {
		return err
	}
	return s.record(ctx, tx, event)
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
// returns admin.ErrNoUser or admin.ErrEmailTaken.
func (s *Store) SetEmail(ctx context.Context, user uuid.UUID, email string, event audit.Event) error {
	return s.administer(ctx, "set address", func(tx pgx.Tx) error {
		exists, err := found(tx.QueryRow(ctx, `select true from account.users where id = $1 and deleted_at is null
			for update`, user))
		if err == nil && !exists {
			err = admin.ErrNoUser
		}
		if err == nil {
			err = endEmailChange(ctx, tx, user, "replaced")
		}
		taken := false
		if err == nil {
			taken, err = emailTaken(ctx, tx, user, email)
		}
		if err == nil && taken {
			err = admin.ErrEmailTaken
		}
		if err == nil {
			err = s.changeEmail(ctx, tx, user, email, useraccount.ByOperator, event)
		}
		if errors.Is(err, useraccount.ErrEmailTaken) {
			return admin.ErrEmailTaken
		}
		return err
	})
}
