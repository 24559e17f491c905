package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
)

// UserByIdentity reads the user linked to an account at another provider. The user may be disabled. It
// returns false if there is no link.
func (s *Store) UserByIdentity(ctx context.Context, issuer, subject string) (workspace.User, bool, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	var u workspace.User
	err := s.pool.QueryRow(ctx, `select u.id, u.email, u.name, u.disabled_at, u.email_proven_at is not null
		from account.identities i join account.users u on u.id = i.user_id where i.issuer = $1
		and i.subject = $2`, issuer, subject).
		Scan(&u.ID, &u.Email, &u.Name, &u.DisabledAt, &u.Proven)
	if errors.Is(err, pgx.ErrNoRows) {
		return workspace.User{}, false, nil
	}
	if err != nil {
		return workspace.User{}, false, unavailable("read identity", err)
	}
	return u, true, nil
}

// IdentitySince returns when the user was linked to an account of an issuer, or false if there is no link.
func (s *Store) IdentitySince(ctx context.Context, user uuid.UUID, issuer string) (time.Time, bool, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	var since time.Time
	err := s.pool.QueryRow(ctx, `select created_at from account.identities where user_id = $1
		and issuer = $2`, user, issuer).
		Scan(&since)
	if errors.Is(err, pgx.ErrNoRows) {
		return time.Time{}, false, nil
	}
	return since, err == nil, unavailable("read identity", err)
}

// UnlinkIdentity removes the link of a user to an account of an issuer, with its audit event. needed reports
// that nothing changed because the user could not sign in without the link; passkeys count as a sign-in
// method if the deployment offers them. If both are false, there was no link.
func (s *Store) UnlinkIdentity(
	ctx context.Context,
	user uuid.UUID,
	issuer string,
	passkeys bool,
	event audit.Event,
) (unlinked, needed bool, err error) {
	err = s.changeFactors(ctx, "unlink identity", event, func(tx pgx.Tx) error {
		unlinked, needed = false, false
		if err := lockUser(ctx, tx, user); err != nil {
			return err
		}
		var linked, otherMethod bool
		err := tx.QueryRow(ctx, `
select exists (select from account.identities where user_id = $1 and issuer = $2),
  exists (select from account.users where id = $1 and password_hash is not null)
  or ($3 and exists (select from account.passkeys where user_id = $1
  and copied_at is null))`, user, issuer, passkeys).Scan(&linked, &otherMethod)
		if needed = err == nil && linked && !otherMethod; err != nil || !linked || needed {
			return err
		}
		if _, err := tx.Exec(ctx, `delete from account.identities where user_id = $1
			and issuer = $2`, user, issuer); err != nil {
			return err
		}
		unlinked = true
		return s.record(ctx, tx, event)
	})
	return unlinked && err == nil, needed && err == nil, err
}

// HasIdentity reports whether the user is linked to an account of an issuer.
func (s *Store) HasIdentity(ctx context.Context, user uuid.UUID, issuer string) (bool, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	var linked bool
	err := s.pool.QueryRow(ctx, `select exists (select from account.identities where user_id = $1
		and issuer = $2)`, user, issuer).
		Scan(&linked)
	return linked, unavailable("read identity", err)
}

// LinkIdentity links an account at another provider to an enabled user who has the e-mail address, which the provider
// has verified, with its audit event. If the user's address was not proven, it ends what the account had (takeOver), or
// returns useraccount.ErrTakeover if confirmed is false. It returns false and changes nothing if the account is linked
// to another user, the user has another account of that issuer, or the user is disabled or has another address by now.
func (s *Store) LinkIdentity(
	ctx context.Context,
	user uuid.UUID,
	email, issuer, subject string,
	confirmed bool,
	event audit.Event,
) (linked bool, over *useraccount.Takeover, err error) {
	err = s.atomically(ctx, "link identity", func(tx pgx.Tx) error {
		linked, over = false, nil
		if err := lockUser(ctx, tx, user); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `insert into account.identities (issuer, subject, user_id)
			select $2, $3, u.id from account.users u where u.id = $1 and u.disabled_at is null and u.email = $4
			on conflict do nothing`, user, issuer, subject, email)
		if err != nil {
			return err
		}
		if linked = tag.RowsAffected() == 1; linked {
			err = s.record(ctx, tx, event)
		} else { // a second click, or the previous release, may have made the same link
			linked, err = found(tx.QueryRow(ctx, `select true from account.identities i
				join account.users u on u.id = i.user_id and u.disabled_at is null and u.email = $4
				where i.user_id = $1 and i.issuer = $2 and i.subject = $3`, user, issuer, subject, email))
		}
		if err != nil || !linked {
			return err
		}
		proven, err := isProven(ctx, tx, user)
		switch {
		case err != nil || proven:
			return err
		case !confirmed:
			return useraccount.ErrTakeover
		}
		over, err = s.takeOver(ctx, tx, user, useraccount.ByUpstream, issuer, event)
		return err
	})
	if err != nil {
		return false, nil, err
	}
	return linked, over, nil
}
