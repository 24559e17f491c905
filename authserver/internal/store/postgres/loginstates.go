package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/signin/loginstate"
)

var _ loginstate.Store = (*Store)(nil)

// SaveLoginState inserts a login state and deletes up to 100 expired ones. Anonymous clients may begin any
// number, and the table holds those of the last minutes only.
func (s *Store) SaveLoginState(ctx context.Context, c loginstate.Record) error {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	_, err := s.pool.Exec(ctx, `
with swept as (
  delete from account.ceremonies where secret_hash in (
    select secret_hash from account.ceremonies where expires_at <= now() order by expires_at limit 100
    for update skip locked)
)
insert into account.ceremonies (secret_hash, binding_hash, purpose, data, expires_at)
values (@secret, @binding, @purpose, @data, now() + @life::interval)`, pgx.NamedArgs{
		"secret": c.SecretHash, "binding": c.BindingHash, "purpose": string(c.Purpose), "data": c.Data, "life": c.Life,
	})
	return unavailable("store login state", err)
}

// TakeLoginState deletes an unexpired login state and returns its data. Of two concurrent calls, one gets it.
func (s *Store) TakeLoginState(
	ctx context.Context,
	secretHash, bindingHash []byte,
	purpose loginstate.Purpose,
) ([]byte, bool, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	var data []byte
	err := s.pool.QueryRow(ctx, `delete from account.ceremonies
		where secret_hash = $1 and binding_hash = $2 and purpose = $3 and expires_at > now() returning data`,
		secretHash, bindingHash, string(purpose)).Scan(&data)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, unavailable("take login state", err)
	}
	return data, true, nil
}
