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
