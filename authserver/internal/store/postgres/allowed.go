package postgres

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// Locks taken by stillAllowed, in the order that all transactions use: user, membership, sign-in or
// credential, then the written rows. The lock on the user is the same as lockUser's, so that a transaction
// that takes both does not block itself.
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
// other. In a distributed Postgres each node has a copy of the users, and a lock for an update of one user locks all
// users.
const approvableUserSQL = userSQL + ` for share`

// stillAllowed locks what authorized a request until the end of the transaction. It returns
// audit.ErrNotAuthorized if that has ended since the check, or if there was nothing. A concurrent transaction that ends
// it waits and then sees what this transaction wrote.
func stillAllowed(ctx context.Context, tx pgx.Tx, a *audit.Authorization) error {
	switch {
	case a == nil:
		return audit.ErrNotAuthorized
	case a.Operator || a.Link:
		return nil
	}
	return allowedBy(ctx, tx, a, allowedUserSQL)
}

// allowedBy is stillAllowed with the statement that locks the user.
func allowedBy(ctx context.Context, tx pgx.Tx, a *audit.Authorization, user string) error {
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
	results := tx.SendBatch(ctx, batch)
	allowed := true
	for _, needs := range needed {
		var held []string
		err := results.QueryRow().Scan(&held)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			_ = results.Close()
			return err
		}
		allowed = allowed && err == nil && perm.FromStrings(held).HasAll(needs)
	}
	if err := results.Close(); err != nil {
		return err
	}
	if !allowed {
		return audit.ErrNotAuthorized
	}
	return nil
}

// StillAllowed returns audit.ErrNotAuthorized if what authorized a request has ended.
func (s *Store) StillAllowed(ctx context.Context, a *audit.Authorization) error {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return stillAllowed(ctx, tx, a) })
	if errors.Is(err, audit.ErrNotAuthorized) {
		return err
	}
	return unavailable("check what authorized a request", err)
}

// stillProved locks the sign-in method behind a proof until the end of the transaction. It returns
// session.ErrProofInvalid if the user no longer has the method or is disabled.
func stillProved(ctx context.Context, tx pgx.Tx, user uuid.UUID, proof session.Proof) error {
	var hash string
	err := tx.QueryRow(ctx, `select coalesce(password_hash, '') from account.users where id = $1
		and disabled_at is null for no key update`, user).Scan(&hash)
	if errors.Is(err, pgx.ErrNoRows) {
		return session.ErrProofInvalid
	}
	if err != nil {
		return err
	}
	holds := false
	switch proof.Method {
	case session.Password:
		holds = hash != "" && hash == proof.PasswordHash.Reveal()
	case session.Passkey:
		holds, err = found(tx.QueryRow(ctx,
			`select true from account.passkeys where id = $1 and user_id = $2 and copied_at is null for share`,
			proof.PasskeyID, user))
	case session.OIDC:
		holds, err = found(tx.QueryRow(ctx,
			`select true from account.identities where issuer = $1 and subject = $2 and user_id = $3 for share`,
			proof.Issuer, proof.Subject, user))
	}
	if err == nil && !holds {
		err = session.ErrProofInvalid
	}
	return err
}

// found reports whether a query that selects true returns a row.
func found(row pgx.Row) (yes bool, err error) {
	if err = row.Scan(&yes); errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return yes, err
}
