package postgres

import (
	"context"
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

func (t *transaction) signInMethods(user uuid.UUID) []admin.SignInMethod {
	return rowsOf(t, pgx.RowToStructByName[admin.SignInMethod], signInMethodsSQL, user)
}

// allSignInMethods also reads the authenticator app, which a new password does not remove: it protects the password.
func (t *transaction) allSignInMethods(user uuid.UUID) []admin.SignInMethod {
	all := t.signInMethods(user)
	app := admin.SignInMethod{Kind: admin.Authenticator, ID: admin.AuthenticatorID}
	if t.row(`select created_at from account.authenticators where user_id = $1`, user).find(&app.Created) {
		all = append(all, app)
	}
	return all
}

// SignInMethods lists the passkeys, linked accounts and the authenticator app of a user, or returns admin.ErrNoUser.
func (s *SignIns) SignInMethods(ctx context.Context, user uuid.UUID) (found []admin.SignInMethod, err error) {
	err = s.atomically(ctx, "list ways to sign in", func(tx *transaction) {
		tx.holdUser(user)
		found = tx.allSignInMethods(user)
	})
	return found, err
}

// RemoveSignInMethod removes one of SignInMethods with its event and ends the user's sign-ins, or returns
// admin.ErrNoUser or admin.ErrNoSignInMethod.
func (s *SignIns) RemoveSignInMethod(
	ctx context.Context, user uuid.UUID, id string,
) (removed admin.SignInMethod, err error) {
	err = s.atomically(ctx, "remove a way to sign in", func(tx *transaction) {
		tx.holdUser(user)
		for _, m := range tx.allSignInMethods(user) {
			if m.ID == id {
				removed = m
				tx.removeSignInMethods(user, []admin.SignInMethod{m}, audit.Operator)
				tx.endSignIns(user)
				return
			}
		}
		tx.fail(admin.ErrNoSignInMethod)
	})
	return removed, err
}

// removeSignInMethods deletes passkeys and linked accounts of a user with an event each. The transaction must hold the
// user's row.
func (t *transaction) removeSignInMethods(user uuid.UUID, all []admin.SignInMethod, actor string) {
	for _, m := range all {
		text := `delete from account.identities where user_id = $1 and issuer = $2`
		switch m.Kind {
		case admin.Authenticator:
			text = `delete from account.authenticators where user_id = $1 and $2::text is not null`
		case admin.Passkey:
			text = `delete from account.passkeys where user_id = $1 and id = $2::uuid`
		}
		t.exec(text, user, m.ID)
		event := m.Event(user)
		event.Actor = actor
		t.record(event)
	}
}

const passkeyColumns = `p.id, p.user_id, p.name, p.credential_id, p.public_key, p.sign_count, p.aaguid, p.transports,
  p.backup_eligible, p.backed_up, p.created_at as created, p.last_used_at as last_used, p.copied_at`

// Passkeys lists the user's passkeys, the oldest first.
func (s *SignIns) Passkeys(ctx context.Context, user uuid.UUID) ([]passkey.Passkey, error) {
	return list(ctx, s.db, "list passkeys", pgx.RowToStructByName[passkey.Passkey],
		`select `+passkeyColumns+` from account.passkeys p where p.user_id = $1 order by p.created_at, p.id`, user)
}

// PasskeyByCredential reads a passkey with its user, who may be disabled. It returns false if there is no
// such passkey.
func (s *SignIns) PasskeyByCredential(
	ctx context.Context, credentialID []byte,
) (p passkey.Passkey, u workspace.User, exists bool, err error) {
	type used struct {
		passkey.Passkey
		Email, UserName string
		DisabledAt      *time.Time
	}
	r, exists, err := one(ctx, s.db, "read passkey", pgx.RowToStructByName[used], `
select `+passkeyColumns+`, u.email, u.name as user_name, u.disabled_at
from account.passkeys p join account.users u on u.id = p.user_id where p.credential_id = $1`, credentialID)
	u = workspace.User{ID: r.UserID, Email: r.Email, Name: r.UserName, DisabledAt: r.DisabledAt}
	return r.Passkey, u, exists, err
}

// AddPasskey inserts a passkey with its audit event. It returns false if the user has the maximum number of
// passkeys or the credential is already registered.
func (s *SignIns) AddPasskey(ctx context.Context, p passkey.Passkey, event audit.Event) (bool, error) {
	return s.changeFactors(ctx, "add passkey", &event, func(tx *transaction) {
		tx.lockUser(p.UserID)
		first := tx.firstFactor(event.Authorization)
		tx.noEvent = !tx.insertPasskey(p)
		if !tx.noEvent && first {
			tx.useSecondFactor(event.Authorization.SignInID)
		}
	})
}

// insertPasskey inserts a passkey. It returns false if the user has the maximum number of passkeys or the credential is
// already registered.
func (t *transaction) insertPasskey(p passkey.Passkey) bool {
	return t.exec(`
insert into account.passkeys (id, user_id, name, credential_id, public_key, sign_count, aaguid, transports,
  backup_eligible, backed_up)
select @id, @user, @name, @credential, @key, @count, @aaguid, @transports, @eligible, @backed
where (select count(*) from account.passkeys where user_id = @user) < @most
on conflict (credential_id) do nothing`, pgx.NamedArgs{"id": p.ID, "user": p.UserID, "name": p.Name,
		"credential": p.CredentialID, "key": p.PublicKey, "count": int64(p.SignCount), "aaguid": p.AAGUID,
		"transports": p.Transports, "eligible": p.BackupEligible, "backed": p.BackedUp,
		"most": passkey.MaxPerUser}) == 1
}

// UsePasskey records a use with a conditional update, so that only one of two uses with the same counter
// succeeds.
func (s *SignIns) UsePasskey(ctx context.Context, id uuid.UUID, use passkey.Use, copied audit.Event) (bool, error) {
	good := false
	err := s.atomically(ctx, "use passkey", func(tx *transaction) {
		good = tx.exec(`update account.passkeys set sign_count = $2, backed_up = $3, last_used_at = now()
			where id = $1 and copied_at is null and (sign_count < $2 or (sign_count = 0 and $2 = 0))`,
			id, int64(use.SignCount), use.BackedUp) == 1
		if good {
			return
		}
		marked := tx.exec(`update account.passkeys set copied_at = now() where id = $1 and copied_at is null`, id)
		if marked == 1 {
			tx.record(copied)
		}
	})
	return good && err == nil, err
}

// RemovePasskey deletes a passkey of the user with its audit event, unless the user could not sign in without it.
func (s *SignIns) RemovePasskey(
	ctx context.Context, user, id uuid.UUID, issuer string, event audit.Event,
) (passkey.Removal, error) {
	outcome := passkey.NoSuchPasskey
	_, err := s.changeFactors(ctx, "remove passkey", &event, func(tx *transaction) {
		tx.lockUser(user)
		var known, needed bool
		tx.row(`
select exists (select from account.passkeys where id = $2 and user_id = $1),
  not exists (select from account.users where id = $1 and password_hash is not null)
  and not exists (select from account.identities where user_id = $1 and issuer = $3)
  and not exists (select from account.passkeys where user_id = $1 and id <> $2 and copied_at is null)
  and exists (select from account.passkeys where id = $2
  and copied_at is null)`, user, id, issuer).read(&known, &needed)
		switch {
		case !known:
			outcome, tx.noEvent = passkey.NoSuchPasskey, true
		case needed:
			outcome, tx.noEvent = passkey.OnlyWayIn, true
		default:
			outcome = passkey.Removed
			tx.exec(`delete from account.passkeys where id = $1`, id)
		}
	})
	return outcome, err
}

// lockUser serializes changes of a user's sign-in methods.
func (t *transaction) lockUser(user uuid.UUID) {
	t.exec(`select from account.users where id = $1 for no key update`, user)
}

// HasPasskey reports whether the user has a passkey that is not marked as copied.
func (s *SignIns) HasPasskey(ctx context.Context, user uuid.UUID) (bool, error) {
	return need(ctx, s.db, "read passkeys", pgx.ErrNoRows, pgx.RowTo[bool],
		`select exists (select from account.passkeys where user_id = $1 and copied_at is null)`, user)
}

// UserByIdentity reads the user linked to an account at another provider. The user may be disabled. It
// returns false if there is no link.
func (s *SignIns) UserByIdentity(ctx context.Context, issuer, subject string) (workspace.User, bool, error) {
	return one(ctx, s.db, "read identity", pgx.RowToStructByName[workspace.User], `
select u.id, u.email, u.name, u.disabled_at, u.email_proven_at is not null as proven
from account.identities i join account.users u on u.id = i.user_id where i.issuer = $1 and i.subject = $2`,
		issuer, subject)
}

// IdentitySince returns when the user was linked to an account of an issuer, or false if there is no link.
func (s *SignIns) IdentitySince(ctx context.Context, user uuid.UUID, issuer string) (time.Time, bool, error) {
	return one(ctx, s.db, "read identity", pgx.RowTo[time.Time],
		`select created_at from account.identities where user_id = $1 and issuer = $2`, user, issuer)
}

// UnlinkIdentity removes the link of a user to an account of an issuer, with its audit event. needed reports
// that nothing changed because the user could not sign in without the link; passkeys count as a sign-in
// method if the deployment offers them. If both are false, there was no link.
func (s *SignIns) UnlinkIdentity(
	ctx context.Context, user uuid.UUID, issuer string, passkeys bool, event audit.Event,
) (unlinked, needed bool, err error) {
	unlinked, err = s.changeFactors(ctx, "unlink identity", &event, func(tx *transaction) {
		tx.lockUser(user)
		var linked, otherMethod bool
		tx.row(`
select exists (select from account.identities where user_id = $1 and issuer = $2),
  exists (select from account.users where id = $1 and password_hash is not null)
  or ($3 and exists (select from account.passkeys where user_id = $1
  and copied_at is null))`, user, issuer, passkeys).read(&linked, &otherMethod)
		needed = linked && !otherMethod
		if needed || !linked {
			tx.noEvent = true
			return
		}
		tx.exec(`delete from account.identities where user_id = $1 and issuer = $2`, user, issuer)
	})
	return unlinked, needed && err == nil, err
}

// LinkIdentity links an account at another provider to an enabled user who has the e-mail address, which the provider
// has verified, with its audit event. If the user's address was not proven, it ends what the account had (takeOver), or
// returns useraccount.ErrTakeover if confirmed is false. It returns false and changes nothing if the account is linked
// to another user, the user has another account of that issuer, or the user is disabled or has another address by now.
func (s *SignIns) LinkIdentity(
	ctx context.Context, user uuid.UUID, email, issuer, subject string, confirmed bool, event audit.Event,
) (linked bool, over *useraccount.Takeover, err error) {
	err = s.atomically(ctx, "link identity", func(tx *transaction) {
		over = nil
		tx.lockUser(user)
		linked = tx.exec(`insert into account.identities (issuer, subject, user_id)
			select $2, $3, u.id from account.users u where u.id = $1 and u.disabled_at is null and u.email = $4
			on conflict do nothing`, user, issuer, subject, email) == 1
		if linked {
			tx.record(event)
		} else { // a second click, or the previous release, may have made the same link
			linked = tx.has(`select true from account.identities i
				join account.users u on u.id = i.user_id and u.disabled_at is null and u.email = $4
				where i.user_id = $1 and i.issuer = $2 and i.subject = $3`, user, issuer, subject, email)
		}
		switch {
		case !linked || tx.isProven(user):
		case !confirmed:
			tx.fail(useraccount.ErrTakeover)
		default:
			over = tx.takeOver(user, useraccount.ByUpstream, issuer, event)
		}
	})
	if err != nil {
		return false, nil, err
	}
	return linked, over, nil
}
