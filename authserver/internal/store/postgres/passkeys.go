package postgres

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
)

var _ passkey.Store = (*Store)(nil)

const passkeyColumns = `p.id, p.user_id, p.name, p.credential_id, p.public_key, p.sign_count, p.aaguid, p.transports,
  p.backup_eligible, p.backed_up, p.created_at, p.last_used_at, p.copied_at`

func passkeyTargets(p *passkey.Passkey) []any {
	return []any{
		&p.ID, &p.UserID, &p.Name, &p.CredentialID, &p.PublicKey, &p.SignCount, &p.AAGUID, &p.Transports,
		&p.BackupEligible, &p.BackedUp, &p.Created, &p.LastUsed, &p.CopiedAt,
	}
}

// Passkeys lists the user's passkeys, the oldest first.
func (s *Store) Passkeys(ctx context.Context, user uuid.UUID) ([]passkey.Passkey, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	rows, err := s.pool.Query(
		ctx,
		`select `+passkeyColumns+` from account.passkeys p where p.user_id = $1 order by p.created_at, p.id`,
		user,
	)
	if err != nil {
		return nil, unavailable("list passkeys", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (passkey.Passkey, error) {
		var p passkey.Passkey
		err := row.Scan(passkeyTargets(&p)...)
		return p, err
	})
	return found, unavailable("list passkeys", err)
}

// PasskeyByCredential reads a passkey with its user, who may be disabled. It returns false if there is no
// such passkey.
func (s *Store) PasskeyByCredential(
	ctx context.Context,
	credentialID []byte,
) (passkey.Passkey, workspace.User, bool, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	var p passkey.Passkey
	var u workspace.User
	err := s.pool.QueryRow(ctx, `select `+passkeyColumns+`, u.id, u.email, u.name, u.disabled_at
		from account.passkeys p join account.users u on u.id = p.user_id where p.credential_id = $1`, credentialID).
		Scan(append(passkeyTargets(&p), &u.ID, &u.Email, &u.Name, &u.DisabledAt)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return passkey.Passkey{}, workspace.User{}, false, nil
	}
	if err != nil {
		return passkey.Passkey{}, workspace.User{}, false, unavailable("read passkey", err)
	}
	return p, u, true, nil
}

// AddPasskey inserts a passkey with its audit event. It returns false if the user has the maximum number of
// passkeys or the credential is already registered.
func (s *Store) AddPasskey(ctx context.Context, p passkey.Passkey, event audit.Event) (bool, error) {
	added := false
	err := s.changeFactors(ctx, "add passkey", event, func(tx pgx.Tx) error {
		added = false
		if err := lockUser(ctx, tx, p.UserID); err != nil {
			return err
		}
		first, err := firstFactor(ctx, tx, event.Authorization)
		if err != nil {
			return err
		}
		inserted, err := insertPasskey(ctx, tx, p)
		if err != nil || !inserted {
			return err
		}
		added = true
		if first {
			if err := useSecondFactor(ctx, tx, event.Authorization.SignInID); err != nil {
				return err
			}
		}
		return s.record(ctx, tx, event)
	})
	return added && err == nil, err
}

// insertPasskey inserts a passkey. It returns false if the user has the maximum number of passkeys or the credential is
// already registered.
func insertPasskey(ctx context.Context, tx pgx.Tx, p passkey.Passkey) (bool, error) {
	tag, err := tx.Exec(ctx, `
insert into account.passkeys (id, user_id, name, credential_id, public_key, sign_count, aaguid, transports,
  backup_eligible, backed_up)
select @id, @user, @name, @credential, @key, @count, @aaguid, @transports, @eligible, @backed
where (select count(*) from account.passkeys where user_id = @user) < @most
on conflict (credential_id) do nothing`, pgx.NamedArgs{
		"id":         p.ID,
		"user":       p.UserID,
		"name":       p.Name,
		"credential": p.CredentialID,
		"key":        p.PublicKey,
		"count":      int64(p.SignCount),
		"aaguid":     p.AAGUID,
		"transports": p.Transports,
		"eligible":   p.BackupEligible,
		"backed":     p.BackedUp,
		"most":       passkey.MaxPerUser,
	})
	return tag.RowsAffected() == 1, err
}

// UsePasskey records a use with a conditional update, so that only one of two uses with the same counter
// succeeds.
func (s *Store) UsePasskey(ctx context.Context, id uuid.UUID, use passkey.Use, copied audit.Event) (bool, error) {
	good := false
	err := s.atomically(ctx, "use passkey", func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `update account.passkeys set sign_count = $2, backed_up = $3, last_used_at = now()
			where id = $1 and copied_at is null and (sign_count < $2 or (sign_count = 0 and $2 = 0))`,
			id, int64(use.SignCount), use.BackedUp)
		if err != nil {
			return err
		}
		if good = tag.RowsAffected() == 1; good {
			return nil
		}
		tag, err = tx.Exec(ctx, `update account.passkeys set copied_at = now() where id = $1 and copied_at is null`, id)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return s.record(ctx, tx, copied)
	})
	return good && err == nil, err
}

// RemovePasskey deletes a passkey of the user with its audit event, unless the user could not sign in without it.
func (s *Store) RemovePasskey(
	ctx context.Context,
	user, id uuid.UUID,
	issuer string,
	event audit.Event,
) (passkey.Removal, error) {
	outcome := passkey.NoSuchPasskey
	err := s.changeFactors(ctx, "remove passkey", event, func(tx pgx.Tx) error {
		outcome = passkey.NoSuchPasskey
		if err := lockUser(ctx, tx, user); err != nil {
			return err
		}
		var known, needed bool
		err := tx.QueryRow(ctx, `
select exists (select from account.passkeys where id = $2 and user_id = $1),
  not exists (select from account.users where id = $1 and password_hash is not null)
  and not exists (select from account.identities where user_id = $1 and issuer = $3)
  and not exists (select from account.passkeys where user_id = $1 and id <> $2 and copied_at is null)
  and exists (select from account.passkeys where id = $2
  and copied_at is null)`, user, id, issuer).Scan(&known, &needed)
		switch {
		case err != nil || !known:
			return err
		case needed:
			outcome = passkey.OnlyWayIn
			return nil
		}
		if _, err := tx.Exec(ctx, `delete from account.passkeys where id = $1`, id); err != nil {
			return err
		}
		outcome = passkey.Removed
		return s.record(ctx, tx, event)
	})
	return outcome, err
}

// lockUser serializes changes of a user's sign-in methods.
func lockUser(ctx context.Context, tx pgx.Tx, user uuid.UUID) error {
	_, err := tx.Exec(ctx, `select from account.users where id = $1 for no key update`, user)
	return err
}

// HasPasskey reports whether the user has a passkey that is not marked as copied.
func (s *Store) HasPasskey(ctx context.Context, user uuid.UUID) (bool, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	var has bool
	err := s.pool.QueryRow(ctx, `select exists (select from account.passkeys where user_id = $1
		and copied_at is null)`, user).
		Scan(&has)
	return has, unavailable("read passkeys", err)
}
