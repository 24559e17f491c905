package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/signin/session"
)

// Sessions stores browser sessions for alexedwards/scs. token is the hash of the cookie.
type Sessions struct{ store *Store }

var _ session.Rows = Sessions{}

// Sessions returns the store of session rows.
func (s *Store) Sessions() Sessions { return Sessions{s} }

// FindCtx returns the data of a session that has not expired.
func (s Sessions) FindCtx(ctx context.Context, token string) ([]byte, bool, error) {
	ctx, cancel := s.store.withOperationLimit(ctx)
	defer cancel()
	var data []byte
	err := s.store.pool.QueryRow(ctx, `select data from account.sessions where token = $1 and expiry > now()`, token).
		Scan(&data)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, unavailable("read session", err)
	}
	return data, true, nil
}

// CommitCtx saves a session.
func (s Sessions) CommitCtx(ctx context.Context, token string, data []byte, expiry time.Time) error {
	ctx, cancel := s.store.withOperationLimit(ctx)
	defer cancel()
	_, err := s.store.pool.Exec(ctx, `insert into account.sessions (token, data, expiry) values ($1, $2, $3)
		on conflict (token) do update set data = excluded.data, expiry = excluded.expiry`, token, data, expiry)
	return unavailable("save session", err)
}

// DeleteCtx deletes a session, if it is there.
func (s Sessions) DeleteCtx(ctx context.Context, token string) error {
	ctx, cancel := s.store.withOperationLimit(ctx)
	defer cancel()
	_, err := s.store.pool.Exec(ctx, `delete from account.sessions where token = $1`, token)
	return unavailable("delete session", err)
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
