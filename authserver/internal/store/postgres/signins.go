package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
)

// BeginSignIn inserts a sign-in whose proof is still valid, with its audit event, or returns
// session.ErrProofInvalid. It locks the user's row, so that a concurrent password change ends this sign-in
// too.
func (s *SignIns) BeginSignIn(ctx context.Context, by session.SignIn, event audit.Event) error {
	return s.atomically(ctx, "begin sign-in", func(tx *transaction) {
		tx.stillProved(by.UserID, by.Proof)
		code := tx.useCode(by.UserID, by.Proof, event)
		// The mail about a new browser is not sent for the first sign-in of an account.
		if tx.sendsMail() && by.NewBrowser &&
			tx.has(`select true from account.sign_ins where user_id = $1 limit 1`, by.UserID) {
			browser := mail.Data{Device: session.DeviceName(by.UserAgent), Network: by.Address}
			tx.mail(by.UserID, mail.NewSignIn, browser)
		}
		// The sum is null without the interval: a distributed Postgres accepts no subquery in values.
		tx.exec(`insert into account.sign_ins (id, user_id, expires_at, method, address, user_agent,
			second_factor_at) values ($1, $2, $3, $4, $5, $6, now() + case when $7 then interval '0' end)`, by.ID,
			by.UserID, by.Expires, by.Method, by.Address, by.UserAgent, code || by.Proof.Method == session.Passkey)
		tx.record(event)
	})
}

// ReauthenticateSignIn stores the event of a new proof, if the proof and the sign-in are still valid.
// Otherwise it returns session.ErrProofInvalid or audit.ErrNotAuthorized.
func (s *SignIns) ReauthenticateSignIn(
	ctx context.Context, user uuid.UUID, proof session.Proof, event audit.Event,
) error {
	return s.change(ctx, "prove sign-in", &event, func(tx *transaction) {
		tx.stillProved(user, proof)
		if code := tx.useCode(user, proof, event); code || proof.Method == session.Passkey {
			tx.useSecondFactor(event.Authorization.SignInID)
		}
	})
}

// signInCounts is true for a sign-in s that has not ended, expired or been idle too long (S1); $1 is
// session.IdleTimeout.
const signInCounts = `s.ended_at is null and s.expires_at > now() and s.last_seen_at > now() - $1::interval`

// SignIn reads a valid sign-in with its user, who must not be disabled, and records when it was last seen, to
// the minute. It also reads which permissions the user holds in any workspace, which the navigation of every
// page needs.
func (s *SignIns) SignIn(ctx context.Context, id uuid.UUID) (session.CurrentUser, bool, error) {
	scan := func(row pgx.CollectableRow) (c session.CurrentUser, err error) {
		err = row.Scan(&c.SignInID, &c.User.ID, &c.User.Email, &c.User.Name, &c.Held, &c.SecondFactor.Has,
			&c.SecondFactor.Used, &c.Method, &c.HasPasskey)
		c.Held = ordered(c.Held)
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
select id, user_id, email, name,
  array(select distinct unnest(m.permissions) from account.memberships m where m.user_id = counting.user_id),
  has, used, method, has_passkey
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
func (s *SignIns) EndOtherSignIns(
	ctx context.Context, user, but uuid.UUID, event audit.Event,
) (ended int64, err error) {
	err = s.change(ctx, "end other sign-ins", &event, func(tx *transaction) {
		ended = tx.exec(`update account.sign_ins set ended_at = now()
			where user_id = $1 and id <> $2 and ended_at is null and expires_at > now()`, user, but)
		tx.noEvent = ended == 0
	})
	return ended, err
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
