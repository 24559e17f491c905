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
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
)

// BeginSignIn inserts a sign-in whose proof is still valid, with its audit event, or returns session.ErrProofInvalid.
// It locks the user's row, so that a concurrent password change ends this sign-in too.
func (s *SignIns) BeginSignIn(ctx context.Context, by session.SignIn, event audit.Event) error {
	return s.atomically(ctx, "begin sign-in", func(tx *transaction) {
		tx.stillProved(by.UserID, by.Proof)
		code := tx.useCode(by.UserID, by.Proof, event)
		// The mail about a new browser is not sent for the first sign-in of an account.
		// It is in the time zone of an earlier one: this one may be another person's.
		if tx.sendsMail() && by.NewBrowser &&
			tx.has(`select true from account.sign_ins where user_id = $1 limit 1`, by.UserID) {
			tx.mail(by.UserID, mail.NewSignIn, mail.Data{Device: session.DeviceName(by.UserAgent), Network: by.Address})
		}
		// The sum is null without the interval: a distributed Postgres accepts no subquery in values.
		tx.exec(`insert into account.sign_ins (id, user_id, expires_at, method, address, user_agent,
			second_factor_at, time_zone)
			values ($1, $2, $3, $4, $5, $6, now() + case when $7 then interval '0' end, $8)`,
			by.ID, by.UserID, by.Expires, by.Method, by.Address, by.UserAgent,
			code || by.Proof.Method == session.Passkey, by.Zone)
		tx.record(event)
	})
}

// ReauthenticateSignIn stores the event of a new proof, if the proof and the sign-in are still valid.
// Otherwise it returns session.ErrProofInvalid or audit.ErrNotAuthorized.
func (s *SignIns) ReauthenticateSignIn(ctx context.Context, user uuid.UUID, by session.Proof, event audit.Event) error {
	return s.change(ctx, "prove sign-in", &event, func(tx *transaction) {
		tx.stillProved(user, by)
		if code := tx.useCode(user, by, event); code || by.Method == session.Passkey {
			tx.useSecondFactor(event.Authorization.SignInID)
		}
	})
}

// signInCounts is true for a sign-in s that has not ended, expired or been idle too long (S1); $1 is
// session.IdleTimeout.
const signInCounts = `s.ended_at is null and s.expires_at > now() and s.last_seen_at > now() - $1::interval`

// SignIn reads a valid sign-in with its user, who must not be disabled, and records when it was last seen, to the
// minute.
func (s *SignIns) SignIn(ctx context.Context, id uuid.UUID) (session.CurrentUser, bool, error) {
	scan := func(row pgx.CollectableRow) (c session.CurrentUser, err error) {
		err = row.Scan(&c.SignInID, &c.User.ID, &c.User.Email, &c.User.Name, &c.SecondFactor.Has,
			&c.SecondFactor.Used, &c.Method, &c.HasPasskey)
		return c, err
	}
	return one(ctx, s.db, "read sign-in", scan, `
with counting as (
  select s.id, s.last_seen_at, u.id as user_id, u.email, u.name, `+hasSecondFactor+` as has,
    `+usedSecondFactor+` as used, s.method,
    exists (select from account.passkeys k where k.user_id = s.user_id) as has_passkey
  from account.sign_ins s join account.users u on u.id = s.user_id
  where s.id = $2 and u.disabled_at is null and `+signInCounts+`
), seen as (
  update account.sign_ins set last_seen_at = now()
  where id = (select id from counting where last_seen_at < now() - interval '1 minute')
)
select id, user_id, email, name, has, used, method, has_passkey
from counting`, session.IdleTimeout, id)
}

// EndSignIn ends a sign-in of the user with its audit event. It ignores a sign-in that has ended or belongs
// to another user. Ending another sign-in requires a valid sign-in; a sign-in may end itself at any time.
func (s *SignIns) EndSignIn(ctx context.Context, user, id uuid.UUID, event audit.Event) error {
	_, err := s.recorded(ctx, "end sign-in", &event, func(tx *transaction) {
		if event.Authorization == nil || event.Authorization.SignInID != id {
			tx.stillAllowed(event.Authorization)
		}
		tx.change(`update account.sign_ins set ended_at = now()
			where id = $1 and user_id = $2 and ended_at is null`, id, user)
	})
	return err
}

// EndOtherSignIns ends every other sign-in of the user with one audit event, and returns their number.
func (s *SignIns) EndOtherSignIns(ctx context.Context, user, but uuid.UUID, event audit.Event) (n int64, err error) {
	err = s.change(ctx, "end other sign-ins", &event, func(tx *transaction) {
		n = tx.exec(`update account.sign_ins set ended_at = now()
			where user_id = $1 and id <> $2 and ended_at is null and expires_at > now()`, user, but)
		tx.noEvent = n == 0
	})
	return n, err
}

// SignInsOf lists the user's valid sign-ins, the most recently seen first.
func (s *SignIns) SignInsOf(ctx context.Context, user uuid.UUID) ([]session.SignIn, error) {
	return list(ctx, s.db, "list sign-ins", pgx.RowToStructByNameLax[session.SignIn], `
select s.id, s.user_id, s.method, s.address, s.user_agent, s.created_at as created, s.last_seen_at as last_seen,
  s.expires_at as expires
from account.sign_ins s where s.user_id = $2 and `+signInCounts+` order by s.last_seen_at desc, s.id desc limit 100`,
		session.IdleTimeout, user)
}

// Sessions stores browser sessions for alexedwards/scs. token is the hash of the cookie.
type Sessions struct{ db *db }

// Sessions returns the store of session rows.
func (s *SignIns) Sessions() Sessions { return Sessions{s.db} }

// FindCtx returns the data of a session that has not expired.
func (s Sessions) FindCtx(ctx context.Context, token string) ([]byte, bool, error) {
	return one(ctx, s.db, "read session", pgx.RowTo[[]byte],
		`select data from account.sessions where token = $1 and expiry > now()`, token)
}

// CommitCtx saves a session.
func (s Sessions) CommitCtx(ctx context.Context, token string, data []byte, expiry time.Time) error {
	_, err := s.db.exec(ctx, "save session", `insert into account.sessions (token, data, expiry) values ($1, $2, $3)
		on conflict (token) do update set data = excluded.data, expiry = excluded.expiry`, token, data, expiry)
	return err
}

// DeleteCtx deletes a session, if it is there.
func (s Sessions) DeleteCtx(ctx context.Context, token string) error {
	_, err := s.db.exec(ctx, "delete session", `delete from account.sessions where token = $1`, token)
	return err
}

// Find is FindCtx for callers without a context.
func (s Sessions) Find(token string) ([]byte, bool, error) {
	return s.FindCtx(context.Background(), token)
}

// Commit is CommitCtx for callers without a context.
func (s Sessions) Commit(token string, data []byte, expiry time.Time) error {
	return s.CommitCtx(context.Background(), token, data, expiry)
}

// Delete is DeleteCtx for callers without a context.
func (s Sessions) Delete(token string) error { return s.DeleteCtx(context.Background(), token) }

// SaveLoginState inserts a login state and deletes up to 100 expired ones. Anonymous clients may begin any
// number, and the table holds those of the last minutes only.
func (s *SignIns) SaveLoginState(ctx context.Context, c session.LoginState) error {
	_, err := s.exec(ctx, "store login state", `
with swept as (
  delete from account.ceremonies where secret_hash in (
    select secret_hash from account.ceremonies where expires_at <= now() order by expires_at limit 100
    for update skip locked)
)
insert into account.ceremonies (secret_hash, binding_hash, purpose, data, expires_at)
values (@secret, @binding, @purpose, @data, now() + @life::interval)`, pgx.NamedArgs{"secret": c.SecretHash,
		"binding": c.BindingHash, "purpose": string(c.Purpose), "data": c.Data, "life": c.Life})
	return err
}

// TakeLoginState deletes an unexpired login state and returns its data. Of two concurrent calls, one gets it.
func (s *SignIns) TakeLoginState(
	ctx context.Context, secretHash, bindingHash []byte, purpose session.Purpose,
) ([]byte, bool, error) {
	return one(ctx, s.db, "take login state", pgx.RowTo[[]byte], `delete from account.ceremonies
		where secret_hash = $1 and binding_hash = $2 and purpose = $3 and expires_at > now() returning data`,
		secretHash, bindingHash, string(purpose))
}

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
		tx.refuse(admin.ErrNoSignInMethod)
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

// PasskeyByCredential reads a passkey with its user, who may be disabled. It returns false if there is no such passkey.
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

// UsePasskey records a use with a conditional update, so that only one of two uses with the same counter succeeds.
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
			tx.refuse(useraccount.ErrTakeover)
		default:
			over = tx.takeOver(user, useraccount.ByUpstream, issuer, event)
		}
	})
	if err != nil {
		return false, nil, err
	}
	return linked, over, nil
}
