package postgres

import (
	"cmp"
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/standing"
)

// An introspection is a service's query about a credential.
type introspection struct {
	caller     uuid.UUID
	secretHash []byte
	about      standing.Query
}

// An introspected is the result of an introspection. caller and standing are nil if they do not exist.
type introspected struct {
	caller   *client.Client
	standing *standing.Standing
	issued   time.Time
}

// Introspection reads in one round trip the calling client with its live secret that has this hash, the
// standing of the credential, and, for a personal access token, its creation time (an access token contains
// its own). What does not exist is nil. Its error wraps store.ErrUnavailable.
func (s *Store) Introspection(
	ctx context.Context,
	caller uuid.UUID,
	secretHash []byte,
	q standing.Query,
) (*client.Client, *standing.Standing, time.Time, error) {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	known, err := s.introspections.Do(ctx, introspection{caller, secretHash, q})
	if err != nil {
		return nil, nil, time.Time{}, unavailable("introspect", err)
	}
	return known.caller, known.standing, known.issued, nil
}

// The arrays are in subqueries for the same reason as in snapshotsSQL.
const (
	callerSQL = `
select 1, ` + clientFields + presentedSecret + `
from (select $1::uuid id, $2::bytea secret) asked
join account.oauth_clients c on c.id = asked.id and c.deleted_at is null`
	callersSQL = `
select asked.place, ` + clientFields + presentedSecret + `
from unnest((select $1::uuid[]), (select $2::bytea[])) with ordinality asked (id, secret, place)
join account.oauth_clients c on c.id = asked.id and c.deleted_at is null`
	issuedSQL = `
select asked.place, p.created_at
from unnest((select $1::bytea[])) with ordinality asked (hash, place)
join account.personal_access_tokens p on p.hash = asked.hash`
)

func (s *Store) readIntrospections(ctx context.Context, questions []introspection) (all []introspected, err error) {
	callers, hashes := make([]uuid.UUID, len(questions)), make([][]byte, len(questions))
	secrets := make([][]byte, len(questions))
	abouts := make([]standing.Query, len(questions))
	personal := false
	for i, q := range questions {
		callers[i], secrets[i], hashes[i], abouts[i] = q.caller, q.secretHash, q.about.PATHash, q.about
		personal = personal || q.about.PATHash != nil
	}
	batch := &pgx.Batch{}
	if len(questions) == 1 {
		batch.Queue(callerSQL, callers[0], secrets[0])
	} else {
		batch.Queue(callersSQL, callers, secrets)
	}
	batch.Queue(standing.SQL, standing.Args(abouts)...)
	if personal {
		batch.Queue(issuedSQL, hashes)
	}
	results := s.pool.SendBatch(ctx, batch)
	defer func() { err = cmp.Or(err, results.Close()) }()
	return scanIntrospections(results, len(questions), personal)
}

func scanIntrospections(results pgx.BatchResults, questions int, personal bool) ([]introspected, error) {
	all := make([]introspected, questions)
	rows, err := results.Query()
	if err != nil {
		return nil, err
	}
	if _, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (place int, err error) {
		var caller clientRow
		if err = row.Scan(append([]any{&place}, caller.targets()...)...); err == nil {
			all[place-1].caller = caller.client()
		}
		return place, err
	}); err != nil {
		return nil, err
	}
	if rows, err = results.Query(); err != nil {
		return nil, err
	}
	standings, err := standing.Scan(rows, questions)
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].standing = standings[i]
	}
	if !personal {
		return all, nil
	}
	if rows, err = results.Query(); err != nil {
		return nil, err
	}
	var place int
	var issued time.Time
	_, err = pgx.ForEachRow(rows, []any{&place, &issued}, func() error {
		all[place-1].issued = issued
		return nil
	})
	return all, err
}
