package postgres

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/spelling"
)

const userColumns = `u.id, u.email, u.name, u.disabled_at, u.email_proven_at is not null, coalesce(u.password_hash, '')`

// UserByEmail reads the user with an address in any spelling, and the hash of the user's password, which is empty if
// the user has none. It returns false if there is no such user, or the user was deleted.
func (s *Store) UserByEmail(ctx context.Context, email string) (workspace.User, credential.Secret, bool, error) {
	return s.user(ctx, `select `+userColumns+` from account.users u where u.email = any($1) and u.deleted_at is null
		order by array_position($1, u.email) limit 1`, spelling.Spellings(email))
}

// UserByID is UserByEmail with an identifier.
func (s *Store) UserByID(ctx context.Context, id uuid.UUID) (workspace.User, credential.Secret, bool, error) {
	return s.user(ctx, `select `+userColumns+` from account.users u where u.id = $1 and u.deleted_at is null`, id)
}

// RenewHash replaces the hash of a user's password if it is still the former one, or returns false.
func (s *Store) RenewHash(ctx context.Context, user uuid.UUID, former, hash credential.Secret) (bool, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	tag, err := s.pool.Exec(ctx, `update account.users set password_hash = $3 where id = $1 and password_hash = $2`,
		user, former.Reveal(), hash.Reveal())
	return tag.RowsAffected() == 1, unavailable("renew hash of password", err)
}

// SetName changes the name of a user, with its event, if the event's authorization still holds.
func (s *Store) SetName(ctx context.Context, id uuid.UUID, name string, event audit.Event) error {
	return s.administer(ctx, "set name of user", func(tx pgx.Tx) error {
		if err := stillAllowed(ctx, tx, event.Authorization); err != nil {
			return err
		}
		changed, err := tx.Exec(ctx, `update account.users set name = $2 where id = $1 and name <> $2`, id, name)
		if err != nil || changed.RowsAffected() == 0 {
			return err
		}
		return s.record(ctx, tx, event)
	})
}

func (s *Store) user(ctx context.Context, query string, key any) (workspace.User, credential.Secret, bool, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	var u workspace.User
	var hash string
	err := s.pool.QueryRow(ctx, query, key).Scan(&u.ID, &u.Email, &u.Name, &u.DisabledAt, &u.Proven, &hash)
	if errors.Is(err, pgx.ErrNoRows) {
		return workspace.User{}, "", false, nil
	}
	if err != nil {
		return workspace.User{}, "", false, unavailable("read user", err)
	}
	return u, credential.Secret(hash), true, nil
}
