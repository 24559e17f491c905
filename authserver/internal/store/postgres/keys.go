package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
)

var _ keyring.Store = (*Store)(nil)

const selectKeys = `select kid, public_jwk, private_sealed, state, created_at, activated_at, retired_at
from account.signing_keys where state <> 'removed' order by created_at, kid`

// SigningKeys returns every key that is not removed.
func (s *Store) SigningKeys(ctx context.Context) ([]keyring.StoredKey, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	rows, err := s.pool.Query(ctx, selectKeys)
	if err != nil {
		return nil, unavailable("read signing keys", err)
	}
	keys, err := pgx.CollectRows(rows, scanKey)
	return keys, unavailable("read signing keys", err)
}

func scanKey(row pgx.CollectableRow) (keyring.StoredKey, error) {
	var k keyring.StoredKey
	err := row.Scan(&k.KID, &k.Public, &k.Sealed, &k.State, &k.Created, &k.Activated, &k.Retired)
	return k, err
}

// AddSigningKeys calls add with the current keys and inserts the keys that it returns. One process at a time
// can do so.
func (s *Store) AddSigningKeys(ctx context.Context, add func([]keyring.StoredKey) ([]keyring.StoredKey, error)) error {
	return s.atomically(ctx, "add signing keys", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `lock table account.signing_keys in share row exclusive mode`); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, selectKeys)
		if err != nil {
			return err
		}
		have, err := pgx.CollectRows(rows, scanKey)
		if err != nil {
			return err
		}
		keys, err := add(have)
		if err != nil {
			return err
		}
		for _, k := range keys {
			_, err := tx.Exec(
				ctx,
				`insert into account.signing_keys (kid, public_jwk, private_sealed, state, activated_at)
				values ($1, $2, $3, $4, now() + case when $4 = 'current' then interval '0' end)`,
				k.KID,
				k.Public,
				k.Sealed,
				string(k.State),
			)
			if err != nil {
				return err
			}
		}
		return nil
	})
}
