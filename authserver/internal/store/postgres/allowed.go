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
