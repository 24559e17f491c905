package postgres

import (
	"cmp"
	"context"
	"fmt"
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

const userColumns = `u.id, u.email, u.name, u.disabled_at, u.email_proven_at is not null as proven,
  coalesce(u.password_hash, '') as password_hash`

type userRow struct {
	workspace.User
	PasswordHash credential.Secret
}

// UserByEmail reads the user with an address in any spelling, and the hash of the user's password, which is empty if
// the user has none. It returns false if there is no such user, or the user was deleted.
func (a *Accounts) UserByEmail(ctx context.Context, email string) (workspace.User, credential.Secret, bool, error) {
	return a.user(ctx, `select `+userColumns+` from account.users u where u.email = any($1) and u.deleted_at is null
		order by array_position($1, u.email) limit 1`, spelling.Spellings(email))
}

// UserByID is UserByEmail with an identifier.
func (a *Accounts) UserByID(ctx context.Context, id uuid.UUID) (workspace.User, credential.Secret, bool, error) {
	return a.user(ctx, `select `+userColumns+` from account.users u where u.id = $1 and u.deleted_at is null`, id)
}

// RenewHash replaces the hash of a user's password if it is still the former one, or returns false.
func (a *Accounts) RenewHash(ctx context.Context, user uuid.UUID, former, hash credential.Secret) (bool, error) {
	renewed, err := a.exec(ctx, "renew hash of password",
		`update account.users set password_hash = $3 where id = $1 and password_hash = $2`, user, former.Reveal(),
		hash.Reveal())
	return renewed == 1, err
}

// SetName changes the name of a user, with its event, if the event's authorization still holds.
func (a *Accounts) SetName(ctx context.Context, id uuid.UUID, name string, event audit.Event) error {
	return a.change(ctx, "set name of user", &event, func(tx *transaction) {
		tx.change(`update account.users set name = $2 where id = $1 and name <> $2`, id, name)
	})
}

func (a *Accounts) user(ctx context.Context, query string, key any) (workspace.User, credential.Secret, bool, error) {
	row, found, err := one(ctx, a.db, "read user", pgx.RowToStructByName[userRow], query, key)
	return row.User, row.PasswordHash, found, err
}

// AddUser inserts a user with the event, or returns admin.ErrEmailTaken.
func (a *Accounts) AddUser(ctx context.Context, id uuid.UUID, email, name string, event audit.Event) error {
	return a.change(ctx, "add user", &event, func(tx *transaction) {
		added := tx.exec(`insert into account.users (id, email, name, email_proven_at, email_proven_by)
			select $1, $2, $3, now(), $5 where not exists (select from account.users where email = any($4))`,
			id, email, name, spelling.Spellings(email), useraccount.ByOperator)
		tx.violation(uniqueViolation, "users", admin.ErrEmailTaken)
		tx.require(added == 1, admin.ErrEmailTaken)
	})
}

// Users lists all users by e-mail address, without deleted users.
func (a *Accounts) Users(ctx context.Context) ([]admin.User, error) {
	return listLong(ctx, a.db, "list users", scanAdminUser, usersSQL+` order by email`)
}

// User reads a user, or returns admin.ErrNoUser, also for a deleted user.
func (a *Accounts) User(ctx context.Context, id uuid.UUID) (admin.User, error) {
	return need(ctx, a.db, "list users", admin.ErrNoUser, scanAdminUser, usersSQL+` and id = $1`, id)
}

const usersSQL = `select ` + adminUserColumns + ` from account.users where deleted_at is null`

// FindUser returns the user with the e-mail address, or admin.ErrNoUser.
func (a *Accounts) FindUser(ctx context.Context, email string) (uuid.UUID, error) {
	user, _, found, err := a.UserByEmail(ctx, email)
	if err == nil && !found {
		return uuid.Nil, admin.ErrNoUser
	}
	return user.ID, err
}

// SetDisabled disables a user and ends the user's sign-ins, or enables a user, with the event. It returns
// false if nothing changed.
func (a *Accounts) SetDisabled(ctx context.Context, id uuid.UUID, disabled bool, event audit.Event) (bool, error) {
	return a.changeIf(ctx, "disable or enable user", &event, func(tx *transaction) {
		if tx.holdUser(id) == disabled {
			tx.noEvent = true
			return
		}
		if !disabled {
			tx.exec(`update account.users set disabled_at = null where id = $1`, id)
			return
		}
		tx.exec(`update account.users set disabled_at = now() where id = $1`, id)
		tx.endSignIns(id)
	})
}

// holdUserSQL locks a user's row, unless the user was deleted, and reads whether the user is disabled.
const holdUserSQL = `select disabled_at is not null from account.users
	where id = $1 and deleted_at is null for no key update`

// holdUser locks a user's row and reports whether the user is disabled. It fails with admin.ErrNoUser, also for a
// deleted user.
func (t *transaction) holdUser(id uuid.UUID) (disabled bool) {
	t.require(t.row(holdUserSQL, id).find(&disabled), admin.ErrNoUser)
	return disabled
}

func (t *transaction) endSignIns(user uuid.UUID) {
	t.exec(`update account.sign_ins set ended_at = now() where user_id = $1 and ended_at is null`, user)
}

// asTypedSQL selects the users whose address may be stored in another spelling than its canonical one. SQL cannot tell:
// the domain's spelling depends on IDNA.
const asTypedSQL = `
select ` + adminUserColumns + ` from account.users
where deleted_at is null and (octet_length(email) <> length(email) or strpos(email, 'xn--') > 0)
order by created_at, id`

const adminUserColumns = `id, email, name, password_hash is not null as has_password, email_proven_at as email_proven,
  coalesce(email_proven_by, '') as email_proven_by, created_at as created, disabled_at`

var scanAdminUser = pgx.RowToStructByName[admin.User]

// respell replaces addresses that earlier releases stored as they were typed by their canonical spelling, while the
// services run: lookups find both. An address that another user has, or that has invisible characters, stays as it is,
// and left counts these.
func respell(ctx context.Context, connection *pgx.Conn) (left int, err error) {
	users, err := collect(ctx, connection, scanAdminUser, asTypedSQL)
	if err != nil {
		return 0, err
	}
	for _, u := range users {
		email := spelling.Key(u.Email)
		if spelling.HasInvisible(u.Email) {
			left++
			continue
		}
		if email == u.Email {
			continue
		}
		changed, err := respellUser(ctx, connection, u.ID, u.Email, email)
		if err != nil {
			return 0, err
		}
		if !changed {
			left++
		}
	}
	return left, nil
}

// respellUser changes one address, and the address that an open change of it begins from.
func respellUser(ctx context.Context, connection *pgx.Conn, id uuid.UUID, former, email string) (bool, error) {
	changed := false
	err := pgx.BeginFunc(ctx, connection, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `update account.users set email = $3 where id = $1 and email = $2
			and not exists (select from account.users where email = $3)`, id, former, email)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		changed = true
		_, err = tx.Exec(ctx, `update account.email_changes set old_email = $3 where user_id = $1 and old_email = $2`,
			id, former, email)
		return err
	})
	if violates(err, uniqueViolation, "users") { // another user got it at the same moment
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("respell an address: %w", err)
	}
	return changed, nil
}

// DuplicateUsers lists the users whose addresses are spellings of one address, next to each other, and those whose
// address has invisible characters.
func (a *Accounts) DuplicateUsers(ctx context.Context) ([]admin.Duplicate, error) {
	typed, err := listLong(ctx, a.db, "list addresses", scanAdminUser, asTypedSQL)
	if err != nil {
		return nil, err
	}
	keys := []string{}
	for _, u := range typed {
		if key := spelling.Key(u.Email); key != u.Email {
			keys = append(keys, key)
		}
	}
	others, err := listLong(ctx, a.db, "list addresses", scanAdminUser,
		`select `+adminUserColumns+` from account.users where email = any($1)`, keys)
	if err != nil {
		return nil, err
	}
	same := map[string][]admin.Duplicate{}
	seen := map[uuid.UUID]bool{}
	for _, u := range slices.Concat(others, typed) {
		if key := spelling.Key(u.Email); !seen[u.ID] {
			seen[u.ID] = true
			same[key] = append(same[key], admin.Duplicate{Address: key, User: u})
		}
	}
	var found []admin.Duplicate
	for _, users := range same {
		if len(users) > 1 || spelling.HasInvisible(users[0].Email) {
			found = append(found, users...)
		}
	}
	slices.SortFunc(found, func(one, other admin.Duplicate) int {
		return cmp.Or(cmp.Compare(one.Address, other.Address),
			time.Time(one.Created).Compare(time.Time(other.Created)))
	})
	return found, nil
}

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
func (s *SignIns) AddReset(ctx context.Context, user uuid.UUID, hash []byte, ends time.Time, event audit.Event) error {
	return s.change(ctx, "add password reset", &event, func(tx *transaction) {
		tx.holdUser(user)
		tx.addReset(user, hash, ends, true)
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
