package postgres

import (
	"context"
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
func (t *transaction) storePassword(user uuid.UUID, hash credential.Secret, event audit.Event, browser mail.Data) {
	t.exec(`update account.users set password_hash = $2 where id = $1`, user, hash.Reveal())
	t.endResets(user)
	t.record(event)
	t.mail(user, mail.PasswordChanged, browser)
}

// endResets ends a user's links to set a password.
func (t *transaction) endResets(user uuid.UUID) {
	t.exec(`update account.password_resets set used_at = now() where user_id = $1 and used_at is null`, user)
}

// ChangePassword replaces the password of a signed-in user, with the event. It returns session.ErrProofInvalid if the
// current password was replaced since it was checked, or audit.ErrNotAuthorized.
func (s *SignIns) ChangePassword(ctx context.Context, c password.Change, event audit.Event) error {
	_, err := s.changeFactors(ctx, "change password", &event, func(tx *transaction) {
		if c.Current.Method != "" {
			tx.stillProved(c.UserID, c.Current)
		} else { // the user had no password, and must still have none
			none := tx.has(`select true from account.users where id = $1 and password_hash is null
				for no key update`, c.UserID)
			tx.require(none, session.ErrProofInvalid)
		}
		if c.EndOthers {
			tx.exec(`update account.sign_ins set ended_at = now()
				where user_id = $1 and id <> $2 and ended_at is null`, c.UserID, c.SignInID)
		}
		tx.storePassword(c.UserID, c.Hash, event, mail.Data{Device: c.Device, Network: c.Address})
		tx.noEvent = true // storePassword has recorded it
	})
	return err
}

// SetPassword replaces the hash of a user's password and ends the user's sign-ins, with the event. It returns
// the user's other sign-in methods, and removes them if alone is set.
func (s *SignIns) SetPassword(
	ctx context.Context, id uuid.UUID, hash credential.Secret, alone bool, event audit.Event,
) (others []admin.SignInMethod, err error) {
	err = s.atomically(ctx, "set password", func(tx *transaction) {
		tx.stillAllowed(event.Authorization)
		tx.holdUser(id)
		tx.endSignIns(id)
		tx.storePassword(id, hash, event, mail.Data{Operator: true})
		others = tx.signInMethods(id)
		if alone {
			tx.removeSignInMethods(id, others, event.Actor)
		}
	})
	return others, err
}

// RemovePassword removes the password of a signed-in user, records the event, and ends the user's links to set one. It
// returns password.ErrLastSignInMethod if the user has no other sign-in method. Passkeys count if the deployment offers
// them; a linked account counts if it is at the issuer.
func (s *SignIns) RemovePassword(ctx context.Context, r password.Removal, event audit.Event) error {
	_, err := s.changeFactors(ctx, "remove password", &event, func(tx *transaction) {
		tx.require(tx.has(`select true where
			($2 and exists (select from account.passkeys where user_id = $1 and copied_at is null))
			or exists (select from account.identities where user_id = $1 and issuer = $3)`,
			r.UserID, r.Passkeys, r.Issuer), password.ErrLastSignInMethod)
		tx.change(`update account.users set password_hash = null where id = $1 and password_hash is not null`, r.UserID)
		if tx.noEvent {
			return
		}
		tx.endResets(r.UserID)
		tx.mail(r.UserID, mail.PasswordRemoved, mail.Data{Device: r.Device, Network: r.Address})
	})
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
func (s *SignIns) BeginReset(
	ctx context.Context, email string, tokenHash []byte, expires time.Time, event audit.Event,
) (to workspace.User, made bool, err error) {
	err = s.atomically(ctx, "begin password reset", func(tx *transaction) {
		made = false
		if !tx.row(`select id, name, email from account.users where email = any($1) and disabled_at is null
			order by array_position($1, email) limit 1 for no key update`, spelling.Spellings(email)).
			find(&to.ID, &to.Name, &to.Email) {
			return
		}
		var earlier, unused bool
		var lately int
		tx.row(`
select exists (select from account.password_resets where token_hash = $2),
  exists (select from account.password_resets where token_hash = $2 and used_at is null),
  (select count(*) from account.password_resets where user_id = $1 and created_at > now() - interval '1 hour')`,
			to.ID, tokenHash).read(&earlier, &unused, &lately)
		if earlier || lately >= maxResetsPerHour {
			made = unused
			return
		}
		made = true
		tx.addReset(to.ID, tokenHash, expires, false)
		event.UserID, event.Subject = &to.ID, "user:"+to.ID.String()
		tx.record(event)
	})
	return to, made && err == nil, err
}

// AddReset stores a link of an operator for a user, with the event, or returns admin.ErrNoUser.
func (s *SignIns) AddReset(
	ctx context.Context, user uuid.UUID, tokenHash []byte, expires time.Time, event audit.Event,
) error {
	return s.change(ctx, "add password reset", &event, func(tx *transaction) {
		tx.holdUser(user)
		tx.addReset(user, tokenHash, expires, true)
	})
}

func (t *transaction) addReset(user uuid.UUID, tokenHash []byte, expires time.Time, byOperator bool) {
	t.exec(`delete from account.password_resets where user_id = $1 and expires_at < now() - $2::interval`, user,
		keepResets)
	t.exec(`insert into account.password_resets (token_hash, user_id, expires_at, by_operator)
		values ($1, $2, $3, $4)`, tokenHash, user, expires, byOperator)
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
func (s *SignIns) ResetLink(ctx context.Context, tokenHash []byte) (password.Link, error) {
	return need(ctx, s.db, "read password reset", password.ErrLinkInvalid, pgx.RowToStructByName[password.Link],
		linkSQL, tokenHash)
}

// ResetPassword sets a password with a link, uses up the link and ends the user's sign-ins, and the personal access
// tokens and grants that are not to be kept. On request, it also removes the user's linked accounts and, unless the
// link keeps them (F5), passkeys, with an event for each. If the link takes the account over (F7), it ends all that the
// account had. It returns the grants so that the caller can update Redis. If a link is used twice at the same time, one
// call returns password.ErrLinkInvalid.
func (s *SignIns) ResetPassword(
	ctx context.Context, r password.Reset, event audit.Event,
) (ended []useraccount.EndedGrant, err error) {
	err = s.atomically(ctx, "reset password", func(tx *transaction) {
		tx.sequentially()
		var user uuid.UUID
		var disabled, byOperator bool
		tx.require(tx.row(`select user_id, by_operator from account.password_resets where token_hash = $1`,
			r.TokenHash).find(&user, &byOperator), password.ErrLinkInvalid)
		tx.require(tx.row(holdUserSQL, user).find(&disabled), password.ErrLinkInvalid) // deleted meanwhile
		used := tx.exec(`update account.password_resets set used_at = now()
			where token_hash = $1 and used_at is null and expires_at > now()`, r.TokenHash)
		tx.require(used == 1 && !disabled, password.ErrLinkInvalid)
		tx.endSignIns(user)
		event.UserID, event.Actor, event.Subject = &user, "user:"+user.String(), "user:"+user.String()
		ended = tx.endWithReset(user, r, byOperator, event)
		tx.storePassword(user, r.Hash, event, mail.Data{Device: r.Device, Network: r.Address})
	})
	return ended, err
}

// endWithReset ends what a reset ends besides the sign-ins, and returns the grants.
func (t *transaction) endWithReset(
	user uuid.UUID, r password.Reset, byOperator bool, event audit.Event,
) []useraccount.EndedGrant {
	if !t.isProven(user) {
		by := useraccount.ByReset
		if byOperator {
			by = useraccount.ByOperatorsLink
		}
		return t.takeOver(user, by, "", event).Grants
	}
	if r.RemoveOthers {
		others := t.signInMethods(user)
		if t.has(`select true from account.password_resets r where r.token_hash = $1 and `+keepsPasskeys, r.TokenHash) {
			others = slices.DeleteFunc(others, func(m admin.SignInMethod) bool { return m.Kind == admin.Passkey })
		}
		t.removeSignInMethods(user, others, event.Actor)
	}
	return t.endCredentials(user, r.Keep, grant.ByUser, event.Actor).Grants
}
