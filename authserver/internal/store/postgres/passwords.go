package postgres

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// storePassword replaces the hash of a user's password, ends the user's links to set a password, records the event and
// mails the user. The caller's transaction must hold the user's row.
func (s *Store) storePassword(
	ctx context.Context, tx pgx.Tx, user uuid.UUID, hash credential.Secret, event audit.Event, browser mail.Data,
) error {
	_, err := tx.Exec(ctx, `update account.users set password_hash = $2 where id = $1`, user, hash.Reveal())
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `update account.password_resets set used_at = now()
		where user_id = $1 and used_at is null`, user)
	if err != nil {
		return err
	}
	if err := s.record(ctx, tx, event); err != nil {
		return err
	}
	return s.queueMail(ctx, tx, user, mail.Message{Kind: mail.PasswordChanged, Data: browser})
}

// ChangePassword replaces the password of a signed-in user, with the event. It returns session.ErrProofInvalid if the
// current password was replaced since it was checked, or audit.ErrNotAuthorized.
func (s *Store) ChangePassword(ctx context.Context, c password.Change, event audit.Event) error {
	_, err := s.changeFactors(ctx, "change password", &event, func(tx pgx.Tx) error {
		if err := holdsPassword(ctx, tx, c); err != nil {
			return err
		}
		if c.EndOthers {
			_, err := tx.Exec(ctx, `update account.sign_ins set ended_at = now()
				where user_id = $1 and id <> $2 and ended_at is null`, c.UserID, c.SignInID)
			if err != nil {
				return err
			}
		}
		browser := mail.Data{Device: c.Device, Network: c.Address}
		return cmp.Or(s.storePassword(ctx, tx, c.UserID, c.Hash, event, browser), errNoEvent)
	})
	return err
}

// RemovePassword removes the password of a signed-in user, records the event, and ends the user's links to set one. It
// returns password.ErrLastSignInMethod if the user has no other sign-in method. Passkeys count if the deployment offers
// them; a linked account counts if it is at the issuer.
func (s *Store) RemovePassword(ctx context.Context, r password.Removal, event audit.Event) error {
	_, err := s.changeFactors(ctx, "remove password", &event, func(tx pgx.Tx) error {
		another, err := found(tx.QueryRow(ctx, `select true where
			($2 and exists (select from account.passkeys where user_id = $1 and copied_at is null))
			or exists (select from account.identities where user_id = $1 and issuer = $3)`,
			r.UserID, r.Passkeys, r.Issuer))
		if err == nil && !another {
			err = password.ErrLastSignInMethod
		}
		if err != nil {
			return err
		}
		err = changed(tx.Exec(ctx, `update account.users set password_hash = null
			where id = $1 and password_hash is not null`, r.UserID))
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `update account.password_resets set used_at = now()
			where user_id = $1 and used_at is null`, r.UserID)
		if err != nil {
			return err
		}
		return s.queueMail(ctx, tx, r.UserID, mail.Message{
			Kind: mail.PasswordRemoved,
			Data: mail.Data{Device: r.Device, Network: r.Address},
		})
	})
	return err
}

// holdsPassword checks that the current password is still the user's, or that the user still has none.
func holdsPassword(ctx context.Context, tx pgx.Tx, c password.Change) error {
	if c.Current.Method != "" {
		return stillProved(ctx, tx, c.UserID, c.Current)
	}
	none, err := found(tx.QueryRow(ctx, `select true from account.users
		where id = $1 and password_hash is null for no key update`, c.UserID))
	if err == nil && !none {
		err = session.ErrProofInvalid
	}
	return err
}

// Limits of links by mail.
const (
	maxResetsPerHour = 3 // of one user: more would only fill the mailbox, and the earlier links still work
	keepResets       = 24 * time.Hour
)

// BeginReset stores a link to set a password for the user with an address in any spelling, with the event. The link is
// mailed to the stored address. It returns false if there is no such user, the user is disabled, or enough links were
// made lately. A repeated call stores one link.
func (s *Store) BeginReset(
	ctx context.Context, email string, tokenHash []byte, expires time.Time, event audit.Event,
) (to workspace.User, made bool, err error) {
	err = s.atomically(ctx, "begin password reset", func(tx pgx.Tx) error {
		made = false
		err := tx.QueryRow(ctx, `select id, name, email from account.users where email = any($1) and disabled_at is null
			order by array_position($1, email) limit 1 for no key update`, spelling.Spellings(email)).
			Scan(&to.ID, &to.Name, &to.Email)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		var earlier, unused bool
		var lately int
		err = tx.QueryRow(ctx, `
select exists (select from account.password_resets where token_hash = $2),
  exists (select from account.password_resets where token_hash = $2 and used_at is null),
  (select count(*) from account.password_resets where user_id = $1 and created_at > now() - interval '1 hour')`,
			to.ID, tokenHash).Scan(&earlier, &unused, &lately)
		if err != nil || earlier || lately >= maxResetsPerHour {
			made = unused
			return err
		}
		made = true
		if err := addReset(ctx, tx, to.ID, tokenHash, expires, false); err != nil {
			return err
		}
		event.UserID, event.Subject = &to.ID, "user:"+to.ID.String()
		return s.record(ctx, tx, event)
	})
	return to, made && err == nil, err
}

// AddReset stores a link of an operator for a user, with the event, or returns admin.ErrNoUser.
func (s *Store) AddReset(
	ctx context.Context, user uuid.UUID, tokenHash []byte, expires time.Time, event audit.Event,
) error {
	return s.change(ctx, "add password reset", &event, func(tx pgx.Tx) error {
		if err := holdUser(ctx, tx, user, new(bool)); err != nil {
			return err
		}
		return addReset(ctx, tx, user, tokenHash, expires, true)
	})
}

func addReset(
	ctx context.Context, tx pgx.Tx, user uuid.UUID, tokenHash []byte, expires time.Time, byOperator bool,
) error {
	_, err := tx.Exec(ctx, `delete from account.password_resets where user_id = $1
		and expires_at < now() - $2::interval`, user, keepResets)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `insert into account.password_resets (token_hash, user_id, expires_at, by_operator)
		values ($1, $2, $3, $4)`, tokenHash, user, expires, byOperator)
	return err
}

// keepsPasskeys is the condition under which a link r that does not take over removes no passkey (F5).
const keepsPasskeys = `(not r.by_operator
  and exists (select from account.passkeys k where k.user_id = r.user_id and k.copied_at is null)
  and exists (select from account.memberships d join account.tenants t on t.id = d.tenant_id
    where d.user_id = r.user_id and t.second_factor_required))`

const linkSQL = `
select u.id as user_id, u.name, u.email, r.expires_at as expires,
  exists (select from account.passkeys where user_id = u.id) as passkeys,
  exists (select from account.identities where user_id = u.id) as identities,
  ` + keepsPasskeys + ` as passkeys_stay, not ` + proven + ` as takes_over
from account.password_resets r join account.users u on u.id = r.user_id
where r.token_hash = $1 and r.used_at is null and r.expires_at > now() and u.disabled_at is null`

// ResetLink reads a valid link, or returns password.ErrLinkInvalid.
func (s *Store) ResetLink(ctx context.Context, tokenHash []byte) (password.Link, error) {
	l, found, err := one(ctx, s, "read password reset", pgx.RowToStructByName[password.Link], linkSQL, tokenHash)
	if err == nil && !found {
		err = password.ErrLinkInvalid
	}
	return l, err
}

// ResetPassword sets a password with a link, uses up the link and ends the user's sign-ins, and the personal access
// tokens and grants that are not to be kept. On request, it also removes the user's linked accounts and, unless the
// link keeps them (F5), passkeys, with an event for each. If the link takes the account over (F7), it ends all that the
// account had. It returns the grants so that the caller can update Redis. If a link is used twice at the same time, one
// call returns password.ErrLinkInvalid.
func (s *Store) ResetPassword(
	ctx context.Context, r password.Reset, event audit.Event,
) (ended []useraccount.EndedGrant, err error) {
	err = s.atomically(ctx, "reset password", func(tx pgx.Tx) error {
		if err := sequentially(ctx, tx); err != nil {
			return err
		}
		var user uuid.UUID
		err := tx.QueryRow(ctx, `select user_id from account.password_resets where token_hash = $1`, r.TokenHash).
			Scan(&user)
		if errors.Is(err, pgx.ErrNoRows) {
			return password.ErrLinkInvalid
		}
		if err != nil {
			return err
		}
		var disabled bool
		err = holdUser(ctx, tx, user, &disabled)
		if errors.Is(err, admin.ErrNoUser) { // deleted meanwhile
			return password.ErrLinkInvalid
		}
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `update account.password_resets set used_at = now()
			where token_hash = $1 and used_at is null and expires_at > now()`, r.TokenHash)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 || disabled {
			return password.ErrLinkInvalid
		}
		if err := endSignIns(ctx, tx, user); err != nil {
			return err
		}
		event.UserID, event.Actor, event.Subject = &user, "user:"+user.String(), "user:"+user.String()
		if ended, err = s.endWithReset(ctx, tx, user, r, event); err != nil {
			return err
		}
		browser := mail.Data{Device: r.Device, Network: r.Address}
		return s.storePassword(ctx, tx, user, r.Hash, event, browser)
	})
	return ended, err
}

// endWithReset ends what a reset ends besides the sign-ins, and returns the grants.
func (s *Store) endWithReset(
	ctx context.Context, tx pgx.Tx, user uuid.UUID, r password.Reset, event audit.Event,
) ([]useraccount.EndedGrant, error) {
	var byOperator bool
	err := tx.QueryRow(ctx, `select by_operator from account.password_resets where token_hash = $1`, r.TokenHash).
		Scan(&byOperator)
	if err != nil {
		return nil, err
	}
	if known, err := isProven(ctx, tx, user); err != nil {
		return nil, err
	} else if !known {
		by := useraccount.ByReset
		if byOperator {
			by = useraccount.ByOperatorsLink
		}
		end, err := s.takeOver(ctx, tx, user, by, "", event)
		if err != nil {
			return nil, err
		}
		return end.Grants, nil
	}
	if r.RemoveOthers {
		if err := s.removeOthers(ctx, tx, user, r.TokenHash, event.Actor); err != nil {
			return nil, err
		}
	}
	ended, err := endCredentials(ctx, tx, user, r.Keep, grant.ByUser, event.Actor)
	return ended.Grants, err
}

// removeOthers removes the passkeys and linked accounts that a link may remove. The caller's transaction must hold the
// user's row.
func (s *Store) removeOthers(ctx context.Context, tx pgx.Tx, user uuid.UUID, tokenHash []byte, actor string) error {
	others, err := readSignInMethods(ctx, tx, user)
	if err != nil {
		return err
	}
	kept, err := found(tx.QueryRow(ctx, `select true from account.password_resets r where r.token_hash = $1
		and `+keepsPasskeys, tokenHash))
	if err != nil {
		return err
	}
	if kept {
		others = slices.DeleteFunc(others, func(m admin.SignInMethod) bool { return m.Kind == admin.Passkey })
	}
	return s.removeSignInMethods(ctx, tx, user, others, actor)
}
