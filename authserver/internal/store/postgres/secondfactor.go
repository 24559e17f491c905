package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
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
	return s.change(ctx, "require second factor", &event, func(tx pgx.Tx) error {
		satisfied, err := found(tx.QueryRow(ctx, `select true from account.sign_ins s
			where s.id = $1 and `+hasSecondFactor+` and `+usedSecondFactor, event.Authorization.SignInID))
		if err == nil && required && !satisfied {
			err = session.ErrSecondFactor
		}
		if err != nil {
			return err
		}
		return changed(tx.Exec(ctx, `update account.tenants set second_factor_required = $2
			where id = $1 and second_factor_required <> $2`, workspaceID, required))
	})
}

// changeFactors is changeIf for a change of how a signed-in user signs in: the password, passkeys, the authenticator
// app, recovery codes, linked accounts, and the address, which gets the links to set a password. It locks the user's
// row, and also checks mayChangeFactors. The pages check session.CurrentUser.MayChangeFactors before
// (TestFactors_AreChangedByOneRule).
func (s *Store) changeFactors(ctx context.Context, op string, event *audit.Event, do func(pgx.Tx) error) (bool, error) {
	return s.changeIf(ctx, op, event, func(tx pgx.Tx) error {
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

// UseAuthenticators sets the box that seals the secrets of authenticator apps. Call it before the first request.
func (s *Store) UseAuthenticators(box *seal.Box) { s.authenticators = box }

// Authenticator returns the status of a user's authenticator app.
func (s *Store) Authenticator(ctx context.Context, user uuid.UUID) (status authenticator.Status, err error) {
	status, _, err = one(ctx, s, "read authenticator", pgx.RowToStructByName[authenticator.Status], `
select true as active, a.created_at as created,
  (select count(*) from account.recovery_codes c where c.user_id = a.user_id) as recovery_codes
from account.authenticators a where a.user_id = $1`, user)
	return status, err
}

// AddAuthenticator stores a user's authenticator app, whose code of the step was accepted, and the hashes of recovery
// codes. It returns authenticator.ErrExists, session.ErrSecondFactor or audit.ErrNotAuthorized.
func (s *Store) AddAuthenticator(
	ctx context.Context, user uuid.UUID, secret authenticator.Secret, step int64, recovery [][]byte, event audit.Event,
) error {
	_, err := s.changeFactors(ctx, "add authenticator", &event, func(tx pgx.Tx) error {
		first, err := firstFactor(ctx, tx, event.Authorization)
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `insert into account.authenticators (user_id, secret, last_step)
			values ($1, $2, $3) on conflict do nothing`, user, s.authenticators.SealBytes(secret), step)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return authenticator.ErrExists
		}
		if err := insertRecoveryCodes(ctx, tx, user, recovery); err != nil {
			return err
		}
		if first {
			return useSecondFactor(ctx, tx, event.Authorization.SignInID)
		}
		return nil
	})
	return err
}

// ReplaceRecoveryCodes replaces the recovery codes of a user. It returns false if the user has no authenticator app, or
// audit.ErrNotAuthorized.
func (s *Store) ReplaceRecoveryCodes(
	ctx context.Context, user uuid.UUID, hashes [][]byte, event audit.Event,
) (replaced bool, err error) {
	return s.changeFactors(ctx, "replace recovery codes", &event, func(tx pgx.Tx) error {
		exists, err := found(tx.QueryRow(ctx, `select true from account.authenticators
			where user_id = $1 for update`, user))
		if err == nil && !exists {
			err = errNoEvent
		}
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `delete from account.recovery_codes where user_id = $1`, user); err != nil {
			return err
		}
		return insertRecoveryCodes(ctx, tx, user, hashes)
	})
}

func insertRecoveryCodes(ctx context.Context, tx pgx.Tx, user uuid.UUID, hashes [][]byte) error {
	_, err := tx.Exec(ctx, `insert into account.recovery_codes (user_id, code_hash)
		select $1, unnest($2::bytea[])`, user, hashes)
	return err
}

// RemoveAuthenticator removes a user's authenticator app and recovery codes. It returns false if there is none, or
// audit.ErrNotAuthorized.
func (s *Store) RemoveAuthenticator(ctx context.Context, user uuid.UUID, event audit.Event) (removed bool, err error) {
	return s.changeFactors(ctx, "remove authenticator", &event, func(tx pgx.Tx) error {
		return changed(tx.Exec(ctx, `delete from account.authenticators where user_id = $1`, user))
	})
}

// useCode checks the code of a proof by password, if the user has an authenticator app, and makes it unusable. It
// reports whether a code was used, or returns session.ErrCodeNeeded or session.ErrCodeInvalid. event is the event of
// the sign-in: a used recovery code is recorded with the same user, actor and request.
func (s *Store) useCode(
	ctx context.Context, tx pgx.Tx, user uuid.UUID, proof session.Proof, event audit.Event,
) (used bool, err error) {
	if proof.Method != session.Password {
		return false, nil
	}
	var sealed []byte
	var last int64
	var now time.Time
	err = tx.QueryRow(ctx, `select secret, last_step, now() from account.authenticators
		where user_id = $1 for update`, user).Scan(&sealed, &last, &now)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if proof.Code == "" {
		return false, session.ErrCodeNeeded
	}
	secret, err := s.authenticators.OpenBytes(sealed)
	if err != nil {
		return false, fmt.Errorf("open the secret of an authenticator app: %w", err)
	}
	if step, valid := authenticator.Secret(secret).Check(proof.Code.Reveal(), now, last); valid {
		_, err := tx.Exec(ctx, `update account.authenticators set last_step = $2 where user_id = $1`, user, step)
		return err == nil, err
	}
	err = s.useRecoveryCode(ctx, tx, user, proof.Code, event)
	return err == nil, err
}

func (s *Store) useRecoveryCode(
	ctx context.Context, tx pgx.Tx, user uuid.UUID, code credential.Secret, event audit.Event,
) error {
	var left int
	err := tx.QueryRow(ctx, `with used as (delete from account.recovery_codes
			where user_id = $1 and code_hash = $2 returning 1)
		select (select count(*) from account.recovery_codes where user_id = $1) - 1 from used`,
		user, authenticator.HashRecoveryCode(code)).Scan(&left)
	if errors.Is(err, pgx.ErrNoRows) {
		return session.ErrCodeInvalid
	}
	if err != nil {
		return err
	}
	event.Action, event.Subject = audit.RecoveryCodeUsed, "user:"+user.String()
	event.Detail = map[string]any{"left": left}
	return s.record(ctx, tx, event)
}

// ResealAuthenticators seals the secrets of all authenticator apps with the newest master key and returns their number.
func (s *Store) ResealAuthenticators(ctx context.Context) (resealed int, err error) {
	type row struct {
		User   uuid.UUID
		Secret []byte
	}
	err = s.atomically(ctx, "reseal authenticators", func(tx pgx.Tx) error {
		all, err := collect(ctx, tx, pgx.RowToStructByPos[row],
			`select user_id, secret from account.authenticators for update`)
		if err != nil {
			return err
		}
		for _, r := range all {
			secret, err := s.authenticators.OpenBytes(r.Secret)
			if err != nil {
				return fmt.Errorf("open the secret of the authenticator app of user %s: %w", r.User, err)
			}
			_, err = tx.Exec(ctx, `update account.authenticators set secret = $2 where user_id = $1`,
				r.User, s.authenticators.SealBytes(secret))
			if err != nil {
				return err
			}
		}
		resealed = len(all)
		return nil
	})
	return resealed, err
}

// RecordWrongCode implements session.CodeStore.
func (s *Store) RecordWrongCode(ctx context.Context, t session.CodeTry, tell bool, e audit.Event) error {
	return s.atomically(ctx, "record wrong code", func(tx pgx.Tx) error {
		if tell {
			err := s.queueMail(ctx, tx, t.User, mail.Message{
				Kind: mail.WrongCodes,
				Data: mail.Data{Device: t.Device, Network: t.Address.String()},
			})
			if err != nil {
				return err
			}
		}
		return s.record(ctx, tx, e)
	})
}
