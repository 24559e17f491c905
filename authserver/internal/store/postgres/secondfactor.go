package postgres

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
)

// Conditions on a sign-in s: its user has a second factor, and a second factor was used at it. A sign-in with a linked
// account counts as used: its provider decides how the user signs in there.
const (
	hasSecondFactor = `(exists (select from account.passkeys k where k.user_id = s.user_id and k.copied_at is null)
  or exists (select from account.authenticators a where a.user_id = s.user_id))`
	usedSecondFactor = `(s.method <> 'password' or s.second_factor_at is not null)`
)

// RequireSecondFactor switches the second-factor requirement of a workspace on or off, and records the event. It
// returns session.ErrSecondFactor if a user who has not used a second factor at this sign-in switches it on.
func (s *Store) RequireSecondFactor(
	ctx context.Context, workspaceID uuid.UUID, required bool, event audit.Event,
) error {
	return s.atomically(ctx, "require second factor", func(tx pgx.Tx) error {
		if err := stillAllowed(ctx, tx, event.Authorization); err != nil {
			return err
		}
		satisfied, err := found(tx.QueryRow(ctx, `select true from account.sign_ins s
			where s.id = $1 and `+hasSecondFactor+` and `+usedSecondFactor, event.Authorization.SignInID))
		if err == nil && required && !satisfied {
			err = session.ErrSecondFactor
		}
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `update account.tenants set second_factor_required = $2
			where id = $1 and second_factor_required <> $2`, workspaceID, required)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return s.record(ctx, tx, event)
	})
}

// changeFactors runs do like atomically, for a change of how a signed-in user signs in: the password, passkeys, the
// authenticator app, recovery codes, linked accounts, and the address, which gets the links to set a password. It locks
// the user's row, and checks the event's authorization and mayChangeFactors. The pages check
// session.CurrentUser.MayChangeFactors before (TestFactors_AreChangedByOneRule).
func (s *Store) changeFactors(ctx context.Context, op string, event audit.Event, do func(pgx.Tx) error) error {
	return s.atomically(ctx, op, func(tx pgx.Tx) error {
		if err := stillAllowed(ctx, tx, event.Authorization); err != nil { // locks the user
			return err
		}
		if err := mayChangeFactors(ctx, tx, event.Authorization); err != nil {
			return err
		}
		return do(tx)
	})
}

// mayChangeFactors returns session.ErrSecondFactor if the user has a second factor but did not use it at this sign-in:
// the password alone must not be enough to replace it. The caller has locked the user's row.
func mayChangeFactors(ctx context.Context, tx pgx.Tx, a *audit.Authorization) error {
	if a == nil || a.SignInID == uuid.Nil {
		return nil
	}
	missing, err := found(tx.QueryRow(ctx, `select true from account.sign_ins s where s.id = $1
		and `+hasSecondFactor+` and not `+usedSecondFactor, a.SignInID))
	if err == nil && missing {
		err = session.ErrSecondFactor
	}
	return err
}

// firstFactor reports whether the user has no second factor yet. Adding the first one counts as using it.
func firstFactor(ctx context.Context, tx pgx.Tx, a *audit.Authorization) (bool, error) {
	if a == nil || a.SignInID == uuid.Nil {
		return false, nil
	}
	return found(tx.QueryRow(ctx, `select true from account.sign_ins s where s.id = $1 and not `+hasSecondFactor,
		a.SignInID))
}

// useSecondFactor records that a second factor was used at a sign-in.
func useSecondFactor(ctx context.Context, tx pgx.Tx, signInID uuid.UUID) error {
	_, err := tx.Exec(ctx, `update account.sign_ins set second_factor_at = now() where id = $1`, signInID)
	return err
}
