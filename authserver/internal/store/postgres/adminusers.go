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

// AddUser inserts a user with the event, or returns admin.ErrEmailTaken.
func (s *Store) AddUser(ctx context.Context, id uuid.UUID, email, name string, event audit.Event) error {
	return s.administer(ctx, "add user", func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `insert into account.users (id, email, name, email_proven_at, email_proven_by)
			select $1, $2, $3, now(), $5 where not exists (select from account.users where email = any($4))`,
			id, email, name, spelling.Spellings(email), useraccount.ByOperator)
		if violates(err, uniqueViolation, "users") || err == nil && tag.RowsAffected() == 0 {
			return admin.ErrEmailTaken
		}
		if err != nil {
			return err
		}
		return s.record(ctx, tx, event)
	})
}

// Users lists all users by e-mail address, without deleted users.
func (s *Store) Users(ctx context.Context) ([]admin.User, error) {
	return s.usersWhere(ctx, `true`, nil)
}

// User reads a user, or returns admin.ErrNoUser, also for a deleted user.
func (s *Store) User(ctx context.Context, id uuid.UUID) (admin.User, error) {
	one, err := s.usersWhere(ctx, `id = @user`, pgx.NamedArgs{"user": id})
	if err == nil && len(one) == 0 {
		err = admin.ErrNoUser
	}
	if err != nil {
		return admin.User{}, err
	}
	return one[0], nil
}

func (s *Store) usersWhere(ctx context.Context, condition string, args pgx.NamedArgs) ([]admin.User, error) {
	return listed(ctx, s, "list users", `
select `+adminUserColumns+` from account.users where deleted_at is null and `+condition+` order by email`, args,
		scanAdminUser)
}

// FindUser returns the user with the e-mail address, or admin.ErrNoUser.
func (s *Store) FindUser(ctx context.Context, email string) (uuid.UUID, error) {
	user, _, found, err := s.UserByEmail(ctx, email)
	if err == nil && !found {
		return uuid.Nil, admin.ErrNoUser
	}
	return user.ID, err
}

// SetDisabled disables a user and ends the user's sign-ins, or enables a user, with the event. It returns
// false if nothing changed.
func (s *Store) SetDisabled(ctx context.Context, id uuid.UUID, disabled bool, event audit.Event) (bool, error) {
	changed := false
	err := s.administer(ctx, "disable or enable user", func(tx pgx.Tx) error {
		var before bool
		if err := holdUser(ctx, tx, id, &before); err != nil {
			return err
		}
		if changed = before != disabled; !changed {
			return nil
		}
		end := `update account.users set disabled_at = null where id = $1`
		if disabled {
			end = `update account.users set disabled_at = now() where id = $1`
		}
		if _, err := tx.Exec(ctx, end, id); err != nil {
			return err
		}
		if disabled {
			if err := endSignIns(ctx, tx, id); err != nil {
				return err
			}
		}
		return s.record(ctx, tx, event)
	})
	return changed, err
}

// SetPassword replaces the hash of a user's password and ends the user's sign-ins, with the event. It returns
// the user's other sign-in methods, and removes them if alone is set.
func (s *Store) SetPassword(
	ctx context.Context, id uuid.UUID, hash credential.Secret, alone bool, event audit.Event,
) (others []admin.SignInMethod, err error) {
	err = s.administer(ctx, "set password", func(tx pgx.Tx) error {
		if err := holdUser(ctx, tx, id, new(bool)); err != nil {
			return err
		}
		if err := endSignIns(ctx, tx, id); err != nil {
			return err
		}
		err := s.storePassword(ctx, tx, id, hash, event, mail.Data{Operator: true})
		if err != nil {
			return err
		}
		if others, err = readSignInMethods(ctx, tx, id); err != nil || !alone {
			return err
		}
		return s.removeSignInMethods(ctx, tx, id, others, event.Actor)
	})
	return others, err
}

// holdUser locks a user's row, or returns admin.ErrNoUser, also for a deleted user.
func holdUser(ctx context.Context, tx pgx.Tx, id uuid.UUID, disabled *bool) error {
	err := tx.QueryRow(ctx, `select disabled_at is not null from account.users
		where id = $1 and deleted_at is null for no key update`, id).
		Scan(disabled)
	if errors.Is(err, pgx.ErrNoRows) {
		return admin.ErrNoUser
	}
	return err
}

func endSignIns(ctx context.Context, tx pgx.Tx, user uuid.UUID) error {
	_, err := tx.Exec(ctx, `update account.sign_ins set ended_at = now() where user_id = $1 and ended_at is null`, user)
	return err
}
