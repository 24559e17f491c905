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
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
)

const signInMethodsSQL = `
select 'passkey' as kind, id::text, name, created_at as created, last_used_at as last_used
from account.passkeys where user_id = $1
union all
select 'linked account', issuer, subject, created_at, null from account.identities where user_id = $1
order by 4, 2`

func readSignInMethods(ctx context.Context, tx pgx.Tx, user uuid.UUID) ([]admin.SignInMethod, error) {
	return collect(ctx, tx, pgx.RowToStructByName[admin.SignInMethod], signInMethodsSQL, user)
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
	err = s.atomically(ctx, "list ways to sign in", func(tx pgx.Tx) error {
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
	ctx context.Context, user uuid.UUID, id string,
) (removed admin.SignInMethod, err error) {
	err = s.atomically(ctx, "remove a way to sign in", func(tx pgx.Tx) error {
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
			if err := s.removeSignInMethods(ctx, tx, user, []admin.SignInMethod{m}, audit.Operator); err != nil {
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
	ctx context.Context, tx pgx.Tx, user uuid.UUID, all []admin.SignInMethod, actor string,
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

var _ passkey.Store = (*Store)(nil)

const passkeyColumns = `p.id, p.user_id, p.name, p.credential_id, p.public_key, p.sign_count, p.aaguid, p.transports,
  p.backup_eligible, p.backed_up, p.created_at, p.last_used_at, p.copied_at`

func passkeyTargets(p *passkey.Passkey) []any {
	return []any{&p.ID, &p.UserID, &p.Name, &p.CredentialID, &p.PublicKey, &p.SignCount, &p.AAGUID, &p.Transports,
		&p.BackupEligible, &p.BackedUp, &p.Created, &p.LastUsed, &p.CopiedAt}
}

// Passkeys lists the user's passkeys, the oldest first.
func (s *Store) Passkeys(ctx context.Context, user uuid.UUID) ([]passkey.Passkey, error) {
	scan := func(row pgx.CollectableRow) (p passkey.Passkey, err error) { return p, row.Scan(passkeyTargets(&p)...) }
	return list(ctx, s, "list passkeys", scan,
		`select `+passkeyColumns+` from account.passkeys p where p.user_id = $1 order by p.created_at, p.id`, user)
}

// PasskeyByCredential reads a passkey with its user, who may be disabled. It returns false if there is no
// such passkey.
func (s *Store) PasskeyByCredential(
	ctx context.Context, credentialID []byte,
) (p passkey.Passkey, u workspace.User, exists bool, err error) {
	scan := func(row pgx.CollectableRow) (passkey.Passkey, error) {
		return p, row.Scan(append(passkeyTargets(&p), &u.ID, &u.Email, &u.Name, &u.DisabledAt)...)
	}
	_, exists, err = one(ctx, s, "read passkey", scan, `select `+passkeyColumns+`, u.id, u.email, u.name, u.disabled_at
		from account.passkeys p join account.users u on u.id = p.user_id where p.credential_id = $1`, credentialID)
	return p, u, exists, err
}

// AddPasskey inserts a passkey with its audit event. It returns false if the user has the maximum number of
// passkeys or the credential is already registered.
func (s *Store) AddPasskey(ctx context.Context, p passkey.Passkey, event audit.Event) (bool, error) {
	return s.changeFactors(ctx, "add passkey", &event, func(tx pgx.Tx) error {
		if err := lockUser(ctx, tx, p.UserID); err != nil {
			return err
		}
		first, err := firstFactor(ctx, tx, event.Authorization)
		if err != nil {
			return err
		}
		inserted, err := insertPasskey(ctx, tx, p)
		switch {
		case err == nil && !inserted:
			return errNoEvent
		case err == nil && first:
			return useSecondFactor(ctx, tx, event.Authorization.SignInID)
		}
		return err
	})
}

// insertPasskey inserts a passkey. It returns false if the user has the maximum number of passkeys or the credential is
// already registered.
func insertPasskey(ctx context.Context, tx pgx.Tx, p passkey.Passkey) (bool, error) {
	tag, err := tx.Exec(ctx, `
insert into account.passkeys (id, user_id, name, credential_id, public_key, sign_count, aaguid, transports,
  backup_eligible, backed_up)
select @id, @user, @name, @credential, @key, @count, @aaguid, @transports, @eligible, @backed
where (select count(*) from account.passkeys where user_id = @user) < @most
on conflict (credential_id) do nothing`, pgx.NamedArgs{"id": p.ID, "user": p.UserID, "name": p.Name,
		"credential": p.CredentialID, "key": p.PublicKey, "count": int64(p.SignCount), "aaguid": p.AAGUID,
		"transports": p.Transports, "eligible": p.BackupEligible, "backed": p.BackedUp, "most": passkey.MaxPerUser})
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
	ctx context.Context, user, id uuid.UUID, issuer string, event audit.Event,
) (passkey.Removal, error) {
	outcome := passkey.NoSuchPasskey
	_, err := s.changeFactors(ctx, "remove passkey", &event, func(tx pgx.Tx) error {
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
		case err != nil:
			return err
		case !known:
			return errNoEvent
		case needed:
			outcome = passkey.OnlyWayIn
			return errNoEvent
		}
		outcome = passkey.Removed
		_, err = tx.Exec(ctx, `delete from account.passkeys where id = $1`, id)
		return err
	})
	return outcome, err
}

// lockUser serializes changes of a user's sign-in methods.
func lockUser(ctx context.Context, tx pgx.Tx, user uuid.UUID) error {
	_, err := tx.Exec(ctx, `select from account.users where id = $1 for no key update`, user)
	return err
}

// HasPasskey reports whether the user has a passkey that is not marked as copied.
func (s *Store) HasPasskey(ctx context.Context, user uuid.UUID) (has bool, err error) {
	has, _, err = one(ctx, s, "read passkeys", pgx.RowTo[bool],
		`select exists (select from account.passkeys where user_id = $1 and copied_at is null)`, user)
	return has, err
}

// UserByIdentity reads the user linked to an account at another provider. The user may be disabled. It
// returns false if there is no link.
func (s *Store) UserByIdentity(ctx context.Context, issuer, subject string) (workspace.User, bool, error) {
	return one(ctx, s, "read identity", pgx.RowToStructByName[workspace.User], `
select u.id, u.email, u.name, u.disabled_at, u.email_proven_at is not null as proven
from account.identities i join account.users u on u.id = i.user_id where i.issuer = $1 and i.subject = $2`,
		issuer, subject)
}

// IdentitySince returns when the user was linked to an account of an issuer, or false if there is no link.
func (s *Store) IdentitySince(ctx context.Context, user uuid.UUID, issuer string) (time.Time, bool, error) {
	return one(ctx, s, "read identity", pgx.RowTo[time.Time],
		`select created_at from account.identities where user_id = $1 and issuer = $2`, user, issuer)
}

// UnlinkIdentity removes the link of a user to an account of an issuer, with its audit event. needed reports
// that nothing changed because the user could not sign in without the link; passkeys count as a sign-in
// method if the deployment offers them. If both are false, there was no link.
func (s *Store) UnlinkIdentity(
	ctx context.Context, user uuid.UUID, issuer string, passkeys bool, event audit.Event,
) (unlinked, needed bool, err error) {
	unlinked, err = s.changeFactors(ctx, "unlink identity", &event, func(tx pgx.Tx) error {
		if err := lockUser(ctx, tx, user); err != nil {
			return err
		}
		var linked, otherMethod bool
		err := tx.QueryRow(ctx, `
select exists (select from account.identities where user_id = $1 and issuer = $2),
  exists (select from account.users where id = $1 and password_hash is not null)
  or ($3 and exists (select from account.passkeys where user_id = $1
  and copied_at is null))`, user, issuer, passkeys).Scan(&linked, &otherMethod)
		if needed = err == nil && linked && !otherMethod; needed || err == nil && !linked {
			return errNoEvent
		}
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `delete from account.identities where user_id = $1 and issuer = $2`, user, issuer)
		return err
	})
	return unlinked, needed && err == nil, err
}

// HasIdentity reports whether the user is linked to an account of an issuer.
func (s *Store) HasIdentity(ctx context.Context, user uuid.UUID, issuer string) (linked bool, err error) {
	linked, _, err = one(ctx, s, "read identity", pgx.RowTo[bool],
		`select exists (select from account.identities where user_id = $1 and issuer = $2)`, user, issuer)
	return linked, err
}

// LinkIdentity links an account at another provider to an enabled user who has the e-mail address, which the provider
// has verified, with its audit event. If the user's address was not proven, it ends what the account had (takeOver), or
// returns useraccount.ErrTakeover if confirmed is false. It returns false and changes nothing if the account is linked
// to another user, the user has another account of that issuer, or the user is disabled or has another address by now.
func (s *Store) LinkIdentity(
	ctx context.Context, user uuid.UUID, email, issuer, subject string, confirmed bool, event audit.Event,
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
