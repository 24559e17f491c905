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
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
)

// Locks taken by stillAllowed, in the order that all transactions use: user, membership, sign-in or credential, then
// the written rows. The lock on the user is lockUser's, so that a transaction that takes both does not block itself.
const (
	allowedUserSQL   = userSQL + ` for no key update`
	userSQL          = `select '{}'::text[] from account.users where id = $1 and disabled_at is null`
	allowedMemberSQL = `select permissions from account.memberships where tenant_id = $2 and user_id = $1 for share`
	allowedSignInSQL = `select '{}'::text[] from account.sign_ins s where s.user_id = $2 and s.id = $3
		and ` + signInCounts + ` for share`
	allowedTokenSQL = `select permissions from account.personal_access_tokens p
		where user_id = $1 and id = $2 and revoked_at is null and expires_at > now() and ` + tokenNotEndingSQL + `
		for share`
	allowedGrantSQL = `select permissions from account.grants g
		where tenant_id = $3 and user_id = $1 and id = $2 and state = 'active' and ends_at > now()
		and ` + notEndingSQL + ` for share of g`
)

// allowedFactorSQL selects a row unless the workspace requires a second factor that the sign-in lacks.
const allowedFactorSQL = `select '{}'::text[] from account.sign_ins s, account.tenants t
	where s.id = $1 and t.id = $2 and (not t.second_factor_required or (` + hasSecondFactor + ` and ` +
	usedSecondFactor + `))`

// approvableUserSQL is allowedUserSQL for consents, which take no other lock on the user: they need not wait for each
// other. In a distributed Postgres each node has a copy of the users, and a lock for an update locks all users.
const approvableUserSQL = userSQL + ` for share`

// stillAllowed locks what authorized a request until the end of the transaction. The transaction fails with
// audit.ErrNotAuthorized if that has ended since the check, or if there was nothing. A concurrent transaction that ends
// it waits and then sees what this transaction wrote.
func (t *transaction) stillAllowed(a *audit.Authorization) {
	t.require(a != nil, audit.ErrNotAuthorized)
	if t.err == nil && !a.Operator && !a.Link {
		t.allowedBy(a, allowedUserSQL)
	}
}

// allowedBy is stillAllowed with the statement that locks the user.
func (t *transaction) allowedBy(a *audit.Authorization, user string) {
	if t.err != nil {
		return
	}
	batch, needed := &pgx.Batch{}, []perm.Set{nil}
	batch.Queue(user, a.UserID)
	queue := func(wanted bool, needs perm.Set, sql string, args ...any) {
		if wanted {
			batch.Queue(sql, args...)
			needed = append(needed, needs)
		}
	}
	queue(a.WorkspaceID != uuid.Nil, a.Permissions, allowedMemberSQL, a.UserID, a.WorkspaceID)
	queue(a.SignInID != uuid.Nil, nil, allowedSignInSQL, session.IdleTimeout, a.UserID, a.SignInID)
	queue(a.SignInID != uuid.Nil && a.WorkspaceID != uuid.Nil && len(a.Permissions) > 0, nil, allowedFactorSQL,
		a.SignInID, a.WorkspaceID)
	queue(a.TokenID != uuid.Nil, a.Permissions, allowedTokenSQL, a.UserID, a.TokenID)
	queue(a.GrantID != uuid.Nil, a.Permissions, allowedGrantSQL, a.UserID, a.GrantID, a.WorkspaceID)
	results := t.SendBatch(t.ctx, batch)
	allowed := true
	for _, needs := range needed {
		var held []string
		err := results.QueryRow().Scan(&held)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			_ = results.Close()
			t.fail(err)
			return
		}
		allowed = allowed && err == nil && perm.FromStrings(held).HasAll(needs)
	}
	t.fail(results.Close())
	t.require(allowed, audit.ErrNotAuthorized)
}

// StillAllowed returns audit.ErrNotAuthorized if what authorized a request has ended.
func (d *db) StillAllowed(ctx context.Context, a *audit.Authorization) error {
	ctx, cancel := d.withOperationLimit(ctx)
	defer cancel()
	return d.atomically(ctx, "check what authorized a request", func(tx *transaction) { tx.stillAllowed(a) })
}

// stillProved locks the sign-in method behind a proof until the end of the transaction. The transaction fails with
// session.ErrProofInvalid if the user no longer has the method or is disabled.
func (t *transaction) stillProved(user uuid.UUID, proof session.Proof) {
	var hash string
	t.require(t.row(`select coalesce(password_hash, '') from account.users where id = $1
		and disabled_at is null for no key update`, user).find(&hash), session.ErrProofInvalid)
	holds := false
	switch proof.Method {
	case session.Password:
		holds = hash != "" && hash == proof.PasswordHash.Reveal()
	case session.Passkey:
		holds = t.has(`select true from account.passkeys
			where id = $1 and user_id = $2 and copied_at is null for share`, proof.PasskeyID, user)
	case session.OIDC:
		holds = t.has(`select true from account.identities
			where issuer = $1 and subject = $2 and user_id = $3 for share`, proof.Issuer, proof.Subject, user)
	}
	t.require(holds, session.ErrProofInvalid)
}

// Conditions on a sign-in s: its user has a second factor, and a second factor was used at it. A sign-in with a linked
// account counts as used: its provider decides how the user signs in there.
const (
	hasSecondFactor = `(exists (select from account.passkeys k where k.user_id = s.user_id and k.copied_at is null)
  or exists (select from account.authenticators a where a.user_id = s.user_id))`
	usedSecondFactor = `(s.method <> 'password' or s.second_factor_at is not null)`
)

// RequireSecondFactor switches the second-factor requirement of a workspace on or off, and records the event. It
// returns session.ErrSecondFactor if a user who has not used a second factor at this sign-in switches it on.
func (a *Accounts) RequireSecondFactor(ctx context.Context, workspaceID uuid.UUID, on bool, event audit.Event) error {
	return a.change(ctx, "require second factor", &event, func(tx *transaction) {
		satisfied := tx.has(`select true from account.sign_ins s
			where s.id = $1 and `+hasSecondFactor+` and `+usedSecondFactor, event.Authorization.SignInID)
		tx.require(satisfied || !on, session.ErrSecondFactor)
		tx.change(`update account.tenants set second_factor_required = $2
			where id = $1 and second_factor_required <> $2`, workspaceID, on)
	})
}

// changeFactors is changeIf for a change of how a signed-in user signs in: the password, passkeys, the authenticator
// app, recovery codes, linked accounts, and the address, which gets the links to set a password. It locks the user's
// row, and also checks mayChangeFactors. The pages check session.CurrentUser.MayChangeFactors before
// (TestFactors_AreChangedByOneRule).
func (d *db) changeFactors(ctx context.Context, op string, event *audit.Event, do func(*transaction)) (bool, error) {
	return d.changeIf(ctx, op, event, func(tx *transaction) {
		if tx.mayChangeFactors(event.Authorization); tx.err == nil {
			do(tx)
		}
	})
}

// mayChangeFactors fails with session.ErrSecondFactor if the user has a second factor but did not use it at this
// sign-in: the password alone must not be enough to replace it. The caller has locked the user's row.
func (t *transaction) mayChangeFactors(a *audit.Authorization) {
	if a == nil || a.SignInID == uuid.Nil {
		return
	}
	missing := t.has(`select true from account.sign_ins s where s.id = $1
		and `+hasSecondFactor+` and not `+usedSecondFactor, a.SignInID)
	t.require(!missing, session.ErrSecondFactor)
}

// firstFactor reports whether the user has no second factor yet. Adding the first one counts as using it.
func (t *transaction) firstFactor(a *audit.Authorization) bool {
	return a != nil && a.SignInID != uuid.Nil &&
		t.has(`select true from account.sign_ins s where s.id = $1 and not `+hasSecondFactor, a.SignInID)
}

// useSecondFactor records that a second factor was used at a sign-in.
func (t *transaction) useSecondFactor(signInID uuid.UUID) {
	t.exec(`update account.sign_ins set second_factor_at = now() where id = $1`, signInID)
}

// UseAuthenticators sets the box that seals the secrets of authenticator apps. Call it before the first request.
func (d *db) UseAuthenticators(box *seal.Box) { d.authenticators = box }

// Authenticator returns the status of a user's authenticator app.
func (s *SignIns) Authenticator(ctx context.Context, user uuid.UUID) (status authenticator.Status, err error) {
	status, _, err = one(ctx, s.db, "read authenticator", pgx.RowToStructByName[authenticator.Status], `
select true as active, a.created_at as created,
  (select count(*) from account.recovery_codes c where c.user_id = a.user_id) as recovery_codes
from account.authenticators a where a.user_id = $1`, user)
	return status, err
}

// AddAuthenticator stores a user's authenticator app, whose code of the step was accepted, and the hashes of recovery
// codes. It returns authenticator.ErrExists, session.ErrSecondFactor or audit.ErrNotAuthorized.
func (s *SignIns) AddAuthenticator(
	ctx context.Context, user uuid.UUID, secret authenticator.Secret, step int64, recovery [][]byte, event audit.Event,
) error {
	_, err := s.changeFactors(ctx, "add authenticator", &event, func(tx *transaction) {
		first := tx.firstFactor(event.Authorization)
		added := tx.exec(`insert into account.authenticators (user_id, secret, last_step)
			values ($1, $2, $3) on conflict do nothing`, user, s.authenticators.SealBytes(secret), step)
		tx.require(added == 1, authenticator.ErrExists)
		tx.insertRecoveryCodes(user, recovery)
		if first {
			tx.useSecondFactor(event.Authorization.SignInID)
		}
	})
	return err
}

// ReplaceRecoveryCodes replaces the recovery codes of a user. It returns false if the user has no authenticator app, or
// audit.ErrNotAuthorized.
func (s *SignIns) ReplaceRecoveryCodes(
	ctx context.Context, user uuid.UUID, hashes [][]byte, event audit.Event,
) (replaced bool, err error) {
	return s.changeFactors(ctx, "replace recovery codes", &event, func(tx *transaction) {
		if !tx.has(`select true from account.authenticators where user_id = $1 for update`, user) {
			tx.noEvent = true
			return
		}
		tx.exec(`delete from account.recovery_codes where user_id = $1`, user)
		tx.insertRecoveryCodes(user, hashes)
	})
}

func (t *transaction) insertRecoveryCodes(user uuid.UUID, hashes [][]byte) {
	t.exec(`insert into account.recovery_codes (user_id, code_hash) select $1, unnest($2::bytea[])`, user, hashes)
}

// RemoveAuthenticator removes a user's authenticator app and recovery codes. It returns false if there is none, or
// audit.ErrNotAuthorized.
func (s *SignIns) RemoveAuthenticator(ctx context.Context, user uuid.UUID, event audit.Event) (bool, error) {
	return s.changeFactors(ctx, "remove authenticator", &event, func(tx *transaction) {
		tx.change(`delete from account.authenticators where user_id = $1`, user)
	})
}

// useCode checks the code of a proof by password, if the user has an authenticator app, and makes it unusable. It
// reports whether a code was used, or fails with session.ErrCodeNeeded or session.ErrCodeInvalid. event is the event of
// the sign-in: a used recovery code is recorded with the same user, actor and request.
func (t *transaction) useCode(user uuid.UUID, proof session.Proof, event audit.Event) (used bool) {
	if proof.Method != session.Password {
		return false
	}
	var sealed []byte
	var last int64
	var now time.Time
	if !t.row(`select secret, last_step, now() from account.authenticators
		where user_id = $1 for update`, user).find(&sealed, &last, &now) {
		return false
	}
	if proof.Code == "" {
		t.refuse(session.ErrCodeNeeded)
		return false
	}
	secret, err := t.db.authenticators.OpenBytes(sealed)
	if err != nil {
		t.fail(fmt.Errorf("open the secret of an authenticator app: %w", err))
		return false
	}
	if step, valid := authenticator.Secret(secret).Check(proof.Code.Reveal(), now, last); valid {
		t.exec(`update account.authenticators set last_step = $2 where user_id = $1`, user, step)
		return true
	}
	t.useRecoveryCode(user, proof.Code, event)
	return true
}

func (t *transaction) useRecoveryCode(user uuid.UUID, code credential.Secret, event audit.Event) {
	var left int
	t.require(t.row(`with used as (delete from account.recovery_codes
			where user_id = $1 and code_hash = $2 returning 1)
		select (select count(*) from account.recovery_codes where user_id = $1) - 1 from used`,
		user, authenticator.HashRecoveryCode(code)).find(&left), session.ErrCodeInvalid)
	event.Action, event.Subject = audit.RecoveryCodeUsed, "user:"+user.String()
	event.Detail = map[string]any{"left": left}
	t.record(event)
}

// ResealAuthenticators seals the secrets of all authenticator apps with the newest master key and returns their number.
func (s *SignIns) ResealAuthenticators(ctx context.Context) (resealed int, err error) {
	type row struct {
		User   uuid.UUID
		Secret []byte
	}
	err = s.atomically(ctx, "reseal authenticators", func(tx *transaction) {
		all := rowsOf(tx, pgx.RowToStructByPos[row], `select user_id, secret from account.authenticators for update`)
		for _, r := range all {
			secret, err := s.authenticators.OpenBytes(r.Secret)
			if err != nil {
				tx.fail(fmt.Errorf("open the secret of the authenticator app of user %s: %w", r.User, err))
				return
			}
			tx.exec(`update account.authenticators set secret = $2 where user_id = $1`, r.User,
				s.authenticators.SealBytes(secret))
		}
		resealed = len(all)
	})
	return resealed, err
}

// RecordWrongCode implements session.CodeStore.
func (s *SignIns) RecordWrongCode(ctx context.Context, t session.CodeTry, tell bool, e audit.Event) error {
	return s.atomically(ctx, "record wrong code", func(tx *transaction) {
		if tell {
			tx.mail(t.User, mail.WrongCodes, mail.Data{Device: t.Device, Network: t.Address.String()})
		}
		tx.record(e)
	})
}
