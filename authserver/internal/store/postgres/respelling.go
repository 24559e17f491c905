package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/shared/spelling"
)

// asTypedSQL selects the users whose address may be stored in another spelling than its canonical one. SQL cannot tell:
// the domain's spelling depends on IDNA.
const asTypedSQL = `
select ` + adminUserColumns + ` from account.users
where deleted_at is null and (octet_length(email) <> length(email) or strpos(email, 'xn--') > 0)
order by created_at, id`

const adminUserColumns = `id, email, name, password_hash is not null, email_proven_at, coalesce(email_proven_by, ''),
  created_at, disabled_at`

func scanAdminUser(row pgx.CollectableRow) (u admin.User, err error) {
	return u, row.Scan(&u.ID, &u.Email, &u.Name, &u.HasPassword, &u.EmailProven, &u.EmailProvenBy, &u.Created,
		&u.DisabledAt)
}

// respell replaces addresses that earlier releases stored as they were typed by their canonical spelling, while the
// services run: lookups find both. An address that another user has, or that has invisible characters, stays as it is,
// and left counts these.
func respell(ctx context.Context, connection *pgx.Conn) (left int, err error) {
	rows, err := connection.Query(ctx, asTypedSQL)
	if err != nil {
		return 0, err
	}
	users, err := pgx.CollectRows(rows, scanAdminUser)
	if err != nil {
		return 0, err
	}
	for _, u := range users {
		email := spelling.Key(u.Email)
		if spelling.HasInvisible(u.Email) {
			left++
			continue
		}
		if email == u.Email {
			continue
		}
		changed, err := respellUser(ctx, connection, u.ID, u.Email, email)
		if err != nil {
			return 0, err
		}
		if !changed {
			left++
		}
	}
	return left, nil
}

// respellUser changes one address, and the address that an open change of it begins from.
func respellUser(ctx context.Context, connection *pgx.Conn, id uuid.UUID, former, email string) (bool, error) {
	changed := false
	err := pgx.BeginFunc(ctx, connection, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `update account.users set email = $3 where id = $1 and email = $2
			and not exists (select from account.users where email = $3)`, id, former, email)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		changed = true
		_, err = tx.Exec(ctx, `update account.email_changes set old_email = $3 where user_id = $1 and old_email = $2`,
			id, former, email)
		return err
	})
	if violates(err, uniqueViolation, "users") { // another user got it at the same moment
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("respell an address: %w", err)
	}
	return changed, nil
}

// DuplicateUsers lists the users whose addresses are spellings of one address, next to each other, and those whose
// address has invisible characters.
func (s *Store) DuplicateUsers(ctx context.Context) ([]admin.Duplicate, error) {
	typed, err := listed(ctx, s, "list addresses", asTypedSQL, nil, scanAdminUser)
	if err != nil {
		return nil, err
	}
	keys := []string{}
	for _, u := range typed {
		if key := spelling.Key(u.Email); key != u.Email {
			keys = append(keys, key)
		}
	}
	others, err := listed(ctx, s, "list addresses", `
select `+adminUserColumns+` from account.users
where email = any(@keys)`, pgx.NamedArgs{"keys": keys}, scanAdminUser)
	if err != nil {
		return nil, err
	}
	same := map[string][]admin.Duplicate{}
	seen := map[uuid.UUID]bool{}
	for _, u := range slices.Concat(others, typed) {
		if key := spelling.Key(u.Email); !seen[u.ID] {
			seen[u.ID] = true
			same[key] = append(same[key], admin.Duplicate{Address: key, User: u})
		}
	}
	var found []admin.Duplicate
	for _, users := range same {
		if len(users) > 1 || spelling.HasInvisible(users[0].Email) {
			found = append(found, users...)
		}
	}
	slices.SortFunc(found, func(a, b admin.Duplicate) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), a.Created.Compare(b.Created))
	})
	return found, nil
}
