package postgres

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/oauth/keyring"
)

const selectKeys = `select kid, public_jwk as public, private_sealed as sealed, state, created_at as created,
  activated_at as activated, retired_at as retired
from account.signing_keys where state <> 'removed' order by created_at, kid`

// SigningKeys returns every key that is not removed.
func (g *Grants) SigningKeys(ctx context.Context) ([]keyring.StoredKey, error) {
	return list(ctx, g.db, "read signing keys", pgx.RowToStructByName[keyring.StoredKey], selectKeys)
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
func (g *Grants) ChangeSigningKeys(ctx context.Context, decide keyring.Decision) error {
	var decideErr error
	err := g.atomically(ctx, "change signing keys", func(tx *transaction) {
		var now time.Time
		tx.exec(`lock table account.signing_keys in share row exclusive mode`)
		have := rowsOf(tx, pgx.RowToStructByName[keyring.StoredKey], selectKeys)
		tx.row(`select now()`).read(&now)
		if tx.err != nil {
			return
		}
		var change keyring.Change
		change, decideErr = decide(now, have)
		tx.fail(decideErr)
		tx.changeKeys(change, now)
	})
	return cmp.Or(decideErr, err)
}

func (t *transaction) changeKeys(change keyring.Change, now time.Time) {
	for _, move := range change.Moves {
		t.exec(moveKey, pgx.NamedArgs{"kid": move.KID, "to": string(move.To), "at": now})
	}
	for _, k := range change.Reseals {
		t.exec(`update account.signing_keys set private_sealed = $2 where kid = $1`, k.KID, k.Sealed)
	}
	for _, k := range change.Adds {
		t.exec(`insert into account.signing_keys (kid, public_jwk, private_sealed, state, activated_at)
			values ($1, $2, $3, $4, now() + case when $4 = 'current' then interval '0' end)`, k.KID, k.Public, k.Sealed,
			string(k.State))
	}
	for _, event := range change.Events {
		t.record(event)
	}
}
