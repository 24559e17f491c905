package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
)

var _ keyring.Store = (*Store)(nil)

const selectKeys = `select kid, public_jwk as public, private_sealed as sealed, state, created_at as created,
  activated_at as activated, retired_at as retired
from account.signing_keys where state <> 'removed' order by created_at, kid`

// SigningKeys returns every key that is not removed.
func (s *Store) SigningKeys(ctx context.Context) ([]keyring.StoredKey, error) {
	return list(ctx, s, "read signing keys", pgx.RowToStructByName[keyring.StoredKey], selectKeys)
}

// AddSigningKeys calls add with the current keys and inserts the keys that it returns. One process at a time
// can do so.
func (s *Store) AddSigningKeys(ctx context.Context, add func([]keyring.StoredKey) ([]keyring.StoredKey, error)) error {
	return s.atomically(ctx, "add signing keys", func(tx pgx.Tx) error {
		have, err := lockKeys(ctx, tx)
		if err != nil {
			return err
		}
		keys, err := add(have)
		if err != nil {
			return err
		}
		for _, k := range keys {
			_, err := tx.Exec(ctx,
				`insert into account.signing_keys (kid, public_jwk, private_sealed, state, activated_at)
				values ($1, $2, $3, $4, now() + case when $4 = 'current' then interval '0' end)`, k.KID, k.Public,
				k.Sealed, string(k.State))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// moveKey erases the private key when a key stops signing. @at is the start of the transaction.
const moveKey = `update account.signing_keys set state = @to,
  activated_at = case when @to = 'current' then @at else activated_at end,
  retired_at = case when @to = 'retired' then @at else retired_at end,
  private_sealed = case when @to in ('retired', 'removed') then '' else private_sealed end
where kid = @kid`

// ChangeSigningKeys calls decide with the current keys and applies its change with the events in one
// transaction. One process at a time can do so. It returns the error of decide unchanged; all other errors
// wrap store.ErrUnavailable.
func (s *Store) ChangeSigningKeys(ctx context.Context, decide keyring.Decision) error {
	var decideErr error
	err := s.atomically(ctx, "change signing keys", func(tx pgx.Tx) error {
		var change keyring.Change
		have, err := lockKeys(ctx, tx)
		if err != nil {
			return err
		}
		var now time.Time
		if err := tx.QueryRow(ctx, `select now()`).Scan(&now); err != nil {
			return err
		}
		if change, decideErr = decide(now, have); decideErr != nil {
			return decideErr
		}
		return s.applyKeyChange(ctx, tx, change, now)
	})
	if decideErr != nil {
		return decideErr
	}
	return err
}

// lockKeys locks the keys and reads them.
func lockKeys(ctx context.Context, tx pgx.Tx) ([]keyring.StoredKey, error) {
	if _, err := tx.Exec(ctx, `lock table account.signing_keys in share row exclusive mode`); err != nil {
		return nil, err
	}
	return collect(ctx, tx, pgx.RowToStructByName[keyring.StoredKey], selectKeys)
}

func (s *Store) applyKeyChange(ctx context.Context, tx pgx.Tx, change keyring.Change, now time.Time) error {
	for _, move := range change.Moves {
		args := pgx.NamedArgs{"kid": move.KID, "to": string(move.To), "at": now}
		if _, err := tx.Exec(ctx, moveKey, args); err != nil {
			return err
		}
	}
	for _, k := range change.Reseals {
		if _, err := tx.Exec(ctx, `update account.signing_keys set private_sealed = $2
			where kid = $1`, k.KID, k.Sealed); err != nil {
			return err
		}
	}
	for _, k := range change.Adds {
		_, err := tx.Exec(ctx,
			`insert into account.signing_keys (kid, public_jwk, private_sealed, state) values ($1, $2, $3, $4)`, k.KID,
			k.Public, k.Sealed, string(k.State))
		if err != nil {
			return err
		}
	}
	for _, event := range change.Events {
		if err := s.record(ctx, tx, event); err != nil {
			return err
		}
	}
	return nil
}
