package rest

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/database/retention"
)

// An AnswerTable stores answers in Postgres. It has the columns tenant_id, user_id, route and key, which are its
// primary key, body_hash, status, etag, location, body, needs, credential_id and created_at. The previous release
// stored neither needs nor credential_id: its answers are repeated without these checks.
type AnswerTable struct {
	Name string    // with its schema
	Box  *seal.Box // seals the bodies, or nil
}

// Once runs effect in tx and stores its answer under key, if one was given. For a known key it returns the first answer
// without running effect, ErrReused if the body differs, or another *apierr.Error if the caller must not get it. A
// concurrent request with the same key waits for the first one. An error of effect is returned unchanged; the caller
// must then roll tx back, so that nothing is stored.
func (a AnswerTable) Once(ctx context.Context, tx pgx.Tx, key Key, effect Effect[pgx.Tx]) (Answer, error) {
	if !key.Given() {
		return effect(ctx, tx)
	}
	first, known, err := a.claim(ctx, tx, key)
	if err != nil || known {
		return first, err
	}
	answer, err := effect(ctx, tx)
	if err != nil {
		return Answer{}, err
	}
	return answer, a.store(ctx, tx, key, answer)
}

// claim inserts the key's row, or returns the stored answer. The insert waits for a transaction that inserts the same
// row; a row older than KeyRetention is replaced.
func (a AnswerTable) claim(ctx context.Context, tx pgx.Tx, key Key) (first Answer, known bool, err error) {
	for {
		claimed, err := a.insert(ctx, tx, key)
		if err != nil || claimed {
			return Answer{}, false, err
		}
		first, err = a.Stored(ctx, tx, key)
		if !errors.Is(err, pgx.ErrNoRows) { // otherwise the old row was deleted meanwhile
			return first, err == nil, err
		}
	}
}

// insert inserts the key's row, or replaces a row that is older than KeyRetention. It reports whether it did either. It
// uses the time of the database, and two statements because a distributed Postgres does not accept now() in
// "on conflict do update".
func (a AnswerTable) insert(ctx context.Context, tx pgx.Tx, key Key) (bool, error) {
	tag, err := tx.Exec(ctx, `
		insert into `+a.Name+` (tenant_id, user_id, route, key, body_hash)
		values ($1, $2, $3, $4, $5) on conflict (tenant_id, user_id, route, key) do nothing`,
		key.WorkspaceID, key.User, key.Route, key.Text, key.Body[:])
	if err == nil && tag.RowsAffected() == 0 {
		tag, err = tx.Exec(ctx, `
			update `+a.Name+` set body_hash = $5, created_at = now(), status = null
			where tenant_id = $1 and user_id = $2 and route = $3 and key = $4
				and created_at <= now() - make_interval(secs => $6)`,
			key.WorkspaceID, key.User, key.Route, key.Text, key.Body[:], KeyRetention.Seconds())
	}
	if err != nil {
		return false, fmt.Errorf("claim an idempotency key: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

// A Querier runs a query, in a transaction or not.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Stored returns the answer of a known key, without claiming it. It returns ErrReused if the key was used for another
// body, an error that wraps pgx.ErrNoRows if the key is not known, or another *apierr.Error if the caller must not get
// the answer.
func (a AnswerTable) Stored(ctx context.Context, db Querier, key Key) (first Answer, err error) {
	var same bool
	var needs []string
	var credential *uuid.UUID
	err = db.QueryRow(ctx, `
		select body_hash = $5, status, coalesce(etag, ''), coalesce(location, ''), body, needs, credential_id
		from `+a.Name+` where tenant_id = $1 and user_id = $2 and route = $3 and key = $4
			and created_at > now() - make_interval(secs => $6)`,
		key.WorkspaceID, key.User, key.Route, key.Text, key.Body[:], KeyRetention.Seconds()).
		Scan(&same, &first.Status, &first.ETag, &first.Location, &first.Body, &needs, &credential)
	if err != nil {
		return Answer{}, fmt.Errorf("read the answer of an idempotency key: %w", err)
	}
	if !same {
		return Answer{}, ErrReused
	}
	if err := key.By.mayRepeat(perm.FromStrings(needs), credential); err != nil {
		return Answer{}, err
	}
	if a.Box != nil {
		if first.Body, err = a.Box.OpenBytes(first.Body); err != nil {
			return Answer{}, fmt.Errorf("open the answer of an idempotency key: %w", err)
		}
	}
	first.Replayed = true
	return first, nil
}

func (a AnswerTable) store(ctx context.Context, tx pgx.Tx, key Key, answer Answer) error {
	body := answer.Body
	if a.Box != nil {
		body = a.Box.SealBytes(body)
	}
	var credential *uuid.UUID
	if answer.Secret && key.By.Credential != uuid.Nil {
		credential = &key.By.Credential
	}
	tag, err := tx.Exec(ctx, `
		update `+a.Name+` set status = $5, etag = $6, location = $7, body = $8, needs = $9, credential_id = $10
		where tenant_id = $1 and user_id = $2 and route = $3 and key = $4`,
		key.WorkspaceID, key.User, key.Route, key.Text, answer.Status, answer.ETag, answer.Location, body,
		answer.Needs.Strings(), credential)
	if err != nil {
		return fmt.Errorf("store the answer of an idempotency key: %w", err)
	}
	if tag.RowsAffected() != 1 {
		return errors.New("the row of the idempotency key disappeared during its transaction")
	}
	return nil
}

// Kind returns the kind of the keys that are older than KeyRetention.
func (a AnswerTable) Kind() retention.Kind {
	return retention.RowsOfWorkspaces(a.Name, "tenant_id, user_id, route, key", "t.created_at", "").
		Fixed("idempotency keys", KeyRetention)
}
