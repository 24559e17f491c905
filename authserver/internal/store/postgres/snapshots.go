package postgres

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/openapi"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/contract/usage"
)

// Statements that read the snapshot of an exchange or refresh in one round trip, with one row per query. The
// arrays come from subqueries so that a custom plan is never better: otherwise Postgres plans each time,
// which takes longer than the rest.
//
// snapshotSQL and snapshotsSQL report whether a workspace of the queries has a row in account.endings. Only then does
// limitedSnapshotSQL read what concerns the grant. snapshotsSQL has aggregates in its from clause, because a
// distributed Postgres does not accept subqueries everywhere.
const (
	snapshotSQL = snapshotColumns + liveKeysSQL + `, exists (select from account.endings where tenant_id = $4), null` +
		snapshotFrom + snapshotJoins
	snapshotsSQL = snapshotColumns + `signing.key_ids, pending.ending, null
from unnest((select $1::uuid[]), (select $2::uuid[]), (select $3::bytea[]), (select $4::uuid[]))
  with ordinality asked (client_id, grant_id, secret, tenant_id, place)` + snapshotJoins + `
cross join (select coalesce(array_agg(kid), '{}') key_ids from account.signing_keys where state <> 'removed') signing
cross join (select count(*) > 0 ending from account.endings
  where tenant_id = any ((select $4::uuid[])::uuid[])) pending`
	limitedSnapshotSQL = snapshotColumns + liveKeysSQL + `, false, ` + pendingEndsSQL + snapshotFrom + snapshotJoins

	snapshotColumns = `
select asked.place, now(), ` + clientFields + presentedSecret + `, ` + grantColumns + `,
  u.disabled_at is not null, m.user_id is not null, coalesce(m.permissions, '{}'), coalesce(f.enabled, false), `
	snapshotFrom = `
from (select $1::uuid client_id, $2::uuid grant_id, $3::bytea secret, $4::uuid tenant_id, 1 place) asked`
	snapshotJoins = `
left join account.oauth_clients c on c.id = asked.client_id and c.deleted_at is null
left join account.grants g on g.tenant_id = asked.tenant_id and g.id = asked.grant_id
left join account.users u on u.id = g.user_id
left join account.memberships m on m.tenant_id = g.tenant_id and m.user_id = g.user_id
left join account.tenant_features f on f.tenant_id = g.tenant_id and f.feature = 'llm_integration'`
	// liveKeysSQL is the signing keys that are not removed.
	liveKeysSQL = `array(select kid from account.signing_keys where state <> 'removed')`
)

type snapshotQuery struct {
	client     uuid.UUID
	grant      grant.Key
	secretHash []byte // nil if none was presented
}

// Snapshot reads the client with its live secret that has this hash, the grant and the status of its user in one
// statement, batched with concurrent calls.
func (g *Grants) Snapshot(
	ctx context.Context, clientID uuid.UUID, key grant.Key, secretHash []byte,
) (grant.Snapshot, error) {
	ctx, cancel := g.withOperationLimit(ctx)
	defer cancel()
	snapshot, err := g.snapshots.Do(ctx, snapshotQuery{clientID, key, secretHash})
	return snapshot, unavailable("read grant snapshot", err)
}

func (g *Grants) readSnapshots(ctx context.Context, questions []snapshotQuery) ([]grant.Snapshot, error) {
	clients, grants := make([]uuid.UUID, len(questions)), make([]uuid.UUID, len(questions))
	workspaces, secrets := make([]uuid.UUID, len(questions)), make([][]byte, len(questions))
	for i, q := range questions {
		clients[i], grants[i], workspaces[i], secrets[i] = q.client, q.grant.ID, q.grant.WorkspaceID, q.secretHash
	}
	sql, args := snapshotsSQL, []any{clients, grants, secrets, workspaces}
	if len(questions) == 1 {
		sql, args = snapshotSQL, []any{clients[0], grants[0], secrets[0], workspaces[0]}
	}
	rows, err := g.refreshes.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all, ending := make([]grant.Snapshot, len(questions)), false
	for range questions {
		if !rows.Next() {
			return nil, cmp.Or(rows.Err(), errShort)
		}
		place, snapshot, pending, err := scanSnapshot(rows)
		if err != nil {
			return nil, err
		}
		all[place-1], ending = snapshot, ending || pending
	}
	rows.Close()
	if rows.Err() == nil && ending {
		return g.readLimitedSnapshots(ctx, questions)
	}
	return all, rows.Err()
}

// readLimitedSnapshots reads snapshots with what account.endings says about their grants, in one round trip.
func (g *Grants) readLimitedSnapshots(ctx context.Context, questions []snapshotQuery) ([]grant.Snapshot, error) {
	batch := &pgx.Batch{}
	for _, q := range questions {
		batch.Queue(limitedSnapshotSQL, q.client, q.grant.ID, q.secretHash, q.grant.WorkspaceID)
	}
	results := g.refreshes.SendBatch(ctx, batch)
	defer func() { _ = results.Close() }()
	all := make([]grant.Snapshot, len(questions))
	for i := range questions {
		var err error
		if _, all[i], _, err = scanSnapshot(results.QueryRow()); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// errShort reports that Postgres returned fewer rows than queries. None of our statements allows that.
var errShort = errors.New("fewer rows than requests")

func scanSnapshot(row pgx.Row) (place int, snapshot grant.Snapshot, ending bool, err error) {
	var c client.Client
	var g grant.Grant
	var held, keyIDs pgtype.FlatArray[string] // pgx would plan the scan of []string for each row
	targets := append([]any{&place, &snapshot.Now}, clientTargets(&c)...)
	targets = append(targets, grantTargets(&g)...)
	var ends []pendingEnd
	targets = append(targets, &snapshot.UserDisabled, &snapshot.Member, &held, &snapshot.LLMEnabled, &keyIDs, &ending,
		&ends)
	if err := row.Scan(targets...); err != nil {
		return 0, grant.Snapshot{}, false, err
	}
	snapshot.Client, snapshot.Grant = foundClient(c), foundGrant(g)
	if len(ends) > 0 {
		limited := limitedBy(ends, *snapshot.Grant, snapshot.Now)
		snapshot.Grant = &limited
	}
	snapshot.Held, snapshot.KeyIDs = perm.FromStrings(held), keyIDs
	return place, snapshot, ending, nil
}

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
func (g *Grants) Introspection(
	ctx context.Context, caller uuid.UUID, secretHash []byte, q standing.Query,
) (*client.Client, *standing.Standing, time.Time, error) {
	ctx, cancel := g.withOperationLimit(ctx)
	defer cancel()
	known, err := g.introspections.Do(ctx, introspection{caller, secretHash, q})
	return known.caller, known.standing, known.issued, unavailable("introspect", err)
}

// The arrays are in subqueries for the same reason as in snapshotsSQL.
const (
	callerSQL  = `select 1, ` + presentingClient
	callersSQL = `
select asked.place, ` + clientFields + presentedSecret + `
from unnest((select $1::uuid[]), (select $2::bytea[])) with ordinality asked (id, secret, place)
join account.oauth_clients c on c.id = asked.id and c.deleted_at is null`
	issuedSQL = `
select asked.place, p.created_at
from unnest((select $1::bytea[])) with ordinality asked (hash, place)
join account.personal_access_tokens p on p.hash = asked.hash`
)

func (g *Grants) readIntrospections(ctx context.Context, questions []introspection) ([]introspected, error) {
	callers, hashes := make([]uuid.UUID, len(questions)), make([][]byte, len(questions))
	secrets := make([][]byte, len(questions))
	abouts := make([]standing.Query, len(questions))
	personal := false
	for i, q := range questions {
		callers[i], secrets[i], hashes[i], abouts[i] = q.caller, q.secretHash, q.about.PATHash, q.about
		personal = personal || q.about.PATHash != nil
	}
	sql, args := callersSQL, []any{callers, secrets}
	if len(questions) == 1 {
		sql, args = callerSQL, []any{callers[0], secrets[0]}
	}
	all, batch := make([]introspected, len(questions)), &pgx.Batch{}
	batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var place int
			var caller client.Client
			if err := rows.Scan(append([]any{&place}, clientTargets(&caller)...)...); err != nil {
				return err
			}
			all[place-1].caller = foundClient(caller)
		}
		return rows.Err()
	})
	batch.Queue(standing.SQL, standing.Args(abouts)...).Query(func(rows pgx.Rows) error {
		standings, err := standing.Scan(rows, len(questions))
		for i := range standings {
			all[i].standing = standings[i]
		}
		return err
	})
	if personal {
		batch.Queue(issuedSQL, hashes).Query(func(rows pgx.Rows) error {
			var place int
			var issued time.Time
			_, err := pgx.ForEachRow(rows, []any{&place, &issued}, func() error {
				all[place-1].issued = issued
				return nil
			})
			return err
		})
	}
	return all, g.pool.SendBatch(ctx, batch).Close()
}

// Standing reads the standing of a credential. Its error is standing.ErrUnknown or wraps store.ErrUnavailable.
func (g *Grants) Standing(ctx context.Context, q standing.Query) (standing.Standing, error) {
	ctx, cancel := g.withOperationLimit(ctx)
	defer cancel()
	answer, err := standing.Read(ctx, g.pool, q)
	if err != nil && !errors.Is(err, standing.ErrUnknown) {
		return standing.Standing{}, unavailable("read standing", err)
	}
	return answer, err
}

// EndReplaced ends the tokens that a personal access token replaces. Its error wraps store.ErrUnavailable.
func (g *Grants) EndReplaced(ctx context.Context, token uuid.UUID) error {
	ctx, cancel := g.withOperationLimit(ctx)
	defer cancel()
	return unavailable("end replaced tokens", standing.EndReplaced(ctx, g.pool, token))
}

// UsageCounter starts a counter of requests over this store's connections. Close it before the store.
func (g *Grants) UsageCounter(log *slog.Logger) (*usage.Counter, error) {
	return usage.NewCounter(g.pool, openapi.Authserver, time.Now, log)
}

// LastUseRecorder starts a recorder of uses over this store's connections. Close it before the store.
func (g *Grants) LastUseRecorder(log *slog.Logger) *standing.LastUseRecorder {
	return standing.NewLastUseRecorder(g.pool, log)
}
