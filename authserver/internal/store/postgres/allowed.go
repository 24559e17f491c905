package postgres

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/perm"
)

// What stillAllowed locks, in the order of all transactions: user, membership, sign-in or credential, and only then
// what is written. The lock on the user is the one of lockUser, so that a transaction that takes both never waits for
// itself in two.
const (
	allowedUserSQL   = `select '{}'::text[] from account.users where id = $1 and disabled_at is null for no key update`
	allowedMemberSQL = `select permissions from account.memberships where tenant_id = $2 and user_id = $1 for share`
	allowedSignInSQL = `select '{}'::text[] from account.sign_ins s where s.user_id = $2 and s.id = $3 and ` + signInCounts + ` for share`
	allowedTokenSQL  = `select permissions from account.personal_access_tokens
		where user_id = $1 and id = $2 and revoked_at is null and expires_at > now() for share`
	allowedGrantSQL = `select permissions from account.grants
		where user_id = $1 and id = $2 and state = 'active' and ends_at > now() for share`
)

// stillAllowed locks what allowed a request until the end of the transaction, or returns audit.ErrNotAllowed where it
// has ended since it was checked. Whoever ends it meanwhile waits, and then meets what the transaction has written.
func stillAllowed(ctx context.Context, tx pgx.Tx, a *audit.Authorization) error {
	if a == nil {
		return nil
	}
	batch, needed := &pgx.Batch{}, []perm.Set{nil}
	batch.Queue(allowedUserSQL, a.UserID)
	ask := func(asked bool, needs perm.Set, sql string, args ...any) {
		if asked {
			batch.Queue(sql, args...)
			needed = append(needed, needs)
		}
	}
	ask(a.WorkspaceID != uuid.Nil, a.Permissions, allowedMemberSQL, a.UserID, a.WorkspaceID)
	ask(a.SignInID != uuid.Nil, nil, allowedSignInSQL, session.IdleTimeout, a.UserID, a.SignInID)
	ask(a.TokenID != uuid.Nil, a.Permissions, allowedTokenSQL, a.UserID, a.TokenID)
	ask(a.GrantID != uuid.Nil, a.Permissions, allowedGrantSQL, a.UserID, a.GrantID)
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

// stillProved locks what a proof was made with until the end of the transaction, or returns session.ErrProofGone where
// the user no longer has it, or is disabled.
func stillProved(ctx context.Context, tx pgx.Tx, user uuid.UUID, proof session.Proof) error {
	var hash string
	err := tx.QueryRow(ctx, `select coalesce(password_hash, '') from account.users where id = $1 and disabled_at is null for no key update`,
		user).
		Scan(&hash)
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
		holds, err = found(
			tx.QueryRow(
				ctx,
				`select true from account.passkeys where id = $1 and user_id = $2 and copied_at is null for share`,
				proof.PasskeyID,
				user,
			),
		)
	case session.OIDC:
		holds, err = found(
			tx.QueryRow(
				ctx,
				`select true from account.identities where issuer = $1 and subject = $2 and user_id = $3 for share`,
				proof.Issuer,
				proof.Subject,
				user,
			),
		)
	}
	if err == nil && !holds {
		err = session.ErrProofInvalid
	}
	return err
}

// found says whether a query that selects true has a row.
func found(row pgx.Row) (yes bool, err error) {
	if err = row.Scan(&yes); errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return yes, err
}
