package postgres

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/admin"
)

const signInMethodsSQL = `
select 'passkey', id::text, name, created_at, last_used_at from account.passkeys where user_id = $1
union all
select 'linked account', issuer, subject, created_at, null from account.identities where user_id = $1
order by 4, 2`

func readSignInMethods(ctx context.Context, tx pgx.Tx, user uuid.UUID) ([]admin.SignInMethod, error) {
	rows, err := tx.Query(ctx, signInMethodsSQL, user)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (m admin.SignInMethod, err error) {
		return m, row.Scan(&m.Kind, &m.ID, &m.Name, &m.Created, &m.LastUsed)
	})
}

// readAllMethods also reads the authenticator app, which a new password does not remove: it protects the password.
func readAllMethods(ctx context.Context, tx pgx.Tx, user uuid.UUID) ([]admin.SignInMethod, error) {
	all, err := readSignInMethods(ctx, tx, user)
	if err != nil {
		return nil, err
	}
	app := admin.SignInMethod{Kind: admin.Authenticator, ID: admin.AuthenticatorID}
	err = tx.QueryRow(ctx, `select created_at from account.authenticators where user_id = $1`, user).Scan(&app.Created)
	if errors.Is(err, pgx.ErrNoRows) {
		return all, nil
	}
	return append(all, app), err
}

// SignInMethods lists the passkeys, linked accounts and the authenticator app of a user, or returns admin.ErrNoUser.
func (s *Store) SignInMethods(ctx context.Context, user uuid.UUID) (found []admin.SignInMethod, err error) {
	err = s.administer(ctx, "list ways to sign in", func(tx pgx.Tx) error {
		if err := holdUser(ctx, tx, user, new(bool)); err != nil {
			return err
		}
		found, err = readAllMethods(ctx, tx, user)
		return err
	})
	return found, err
}

// RemoveSignInMethod removes one of SignInMethods with its event and ends the user's sign-ins, or returns
// admin.ErrNoUser or admin.ErrNoSignInMethod.
func (s *Store) RemoveSignInMethod(
	ctx context.Context,
	user uuid.UUID,
	id string,
) (removed admin.SignInMethod, err error) {
	err = s.administer(ctx, "remove a way to sign in", func(tx pgx.Tx) error {
		if err := holdUser(ctx, tx, user, new(bool)); err != nil {
			return err
		}
		all, err := readAllMethods(ctx, tx, user)
		if err != nil {
			return err
		}
		for _, m := range all {
			if m.ID != id {
				continue
			}
			removed = m
			if err := s.removeSignInMethods(ctx, tx, user, []admin.SignInMethod{m}, admin.Actor); err != nil {
				return err
			}
			return endSignIns(ctx, tx, user)
		}
		return admin.ErrNoSignInMethod
	})
	return removed, err
}

// removeSignInMethods deletes passkeys and linked accounts of a user with an event each. The caller's
// transaction must hold the user's row.
func (s *Store) removeSignInMethods(
	ctx context.Context,
	tx pgx.Tx,
	user uuid.UUID,
	all []admin.SignInMethod,
	actor string,
) error {
	for _, m := range all {
		text := `delete from account.identities where user_id = $1 and issuer = $2`
		switch m.Kind {
		case admin.Authenticator:
			text = `delete from account.authenticators where user_id = $1 and $2::text is not null`
		case admin.Passkey:
			text = `delete from account.passkeys where user_id = $1 and id = $2::uuid`
		}
		if _, err := tx.Exec(ctx, text, user, m.ID); err != nil {
			return err
		}
		event := m.Event(user)
		event.Actor = actor
		if err := s.record(ctx, tx, event); err != nil {
			return err
		}
	}
	return nil
}
