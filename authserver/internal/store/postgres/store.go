// Package postgres stores the durable state of authserver.
//
// It has one file for each aggregate, SQL by hand, and uses the account schema only. A Store has five parts, which
// share db: its pools are in store.go, its transactions in transactions.go. It connects as a role that can read and
// write the tables but can neither change the schema nor rewrite the audit log.
package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/database/migrate"
	"github.com/almonerhq/almoner/shared/database/pg"
)

// Migrations are the schema, in goose's format.
//
//go:embed migrations/*.sql
var Migrations embed.FS

var schema = migrate.Migrations{Files: Migrations, Folder: "migrations", Table: "goose_authserver"}

// A Store gives access to the account schema. It is safe for concurrent use. Its parts have the methods of some
// aggregates each. They share the pools and the transactions of db.
type Store struct {
	*db
	*Grants
	*Clients
	*Accounts
	*SignIns
	*Logs
}

// Grants stores grants, personal access tokens, connector policies and the keys that sign access tokens.
type Grants struct {
	*db

	snapshots             pg.Batcher[snapshotQuery, grant.Snapshot]
	introspections        pg.Batcher[introspection, introspected]
	activations, advances *stepBatcher
	// Those of direct steps, which need no snapshot.
	directActivations, directAdvances *stepBatcher
}

// Clients stores OAuth clients and webhook endpoints.
type Clients struct{ *db }

// Accounts stores organisations, workspaces, users, members, invitations and requests for access.
type Accounts struct{ *db }

// SignIns stores how users sign in, their sign-ins and sessions.
type SignIns struct{ *db }

// Logs stores audit events and stopped attempts to connect.
type Logs struct{ *db }

// db is what the parts share.
type db struct {
	pool           *pgxpool.Pool
	refreshes      *pgxpool.Pool // that of Sources.Refreshes, or pool
	nodes          nodes         // of Sources.Refreshes
	probe          *pgxpool.Pool // one connection for Ping and Ready, so that they do not wait for callers
	pings          pg.Pinger
	health         *pg.Watch
	recent         *lru.Cache[uuid.UUID, recentClient]
	limit          time.Duration // of a transaction
	operationLimit time.Duration // of any other operation

	mails          MailQueue // nil if the deployment sends no mail
	authenticators *seal.Box // of the secrets of authenticator apps
	answers        *seal.Box // of the answers by Idempotency-Key

	migrated    atomic.Bool // every migration that this program knows was seen
	distributed atomic.Bool // Postgres is distributed, and has refused a statement that concerns several nodes
}

// Time limits. Our statements take milliseconds: a statement that needs longer waits for a lock or a dead
// server, and a 503 serves the caller better than silence.
const (
	acquireTimeout = time.Second
	maxConnections = 16 // one of them is for Ready
	maxBatch       = 64
)

// poolOptions returns what the pools have in common, among them the time limits that Postgres applies to a connection.
// limit is the time limit of an operation. Postgres reports a lock timeout well before it ends. It is then certain that
// nothing was written, whereas a statement that we abandon may have been executed. The margin is for a busy machine.
func poolOptions(limit time.Duration, tracers []pgx.QueryTracer) pg.Options {
	return pg.Options{
		Name:    "almoner-authserver",
		Connect: limit,
		Ping:    limit,
		Parameters: map[string]string{
			"statement_timeout":                   fmt.Sprint((2 * limit).Milliseconds()),
			"lock_timeout":                        fmt.Sprint((limit * 2 / 5).Milliseconds()),
			"idle_in_transaction_session_timeout": fmt.Sprint(max(10*time.Second, 2*limit).Milliseconds()),
		},
		Tracers: tracers,
	}
}

// errURL replaces the library's error, which quotes the URL.
var errURL = errors.New("the database URL must look like postgres://user:password@host:5432/almoner")

// CheckURL returns an error if Open could not parse the URL.
func CheckURL(url credential.Secret) error {
	if _, err := pgxpool.ParseConfig(url.Reveal()); err != nil {
		return errURL
	}
	return nil
}

// Open makes a store. It does not connect: Postgres may start later. The tracers see every statement.
//
// wait is the time that callers wait for a Postgres that does not respond (pg.NewWatch). If it is longer than a second,
// it is also the time limit of new connections, and of operations that atomically does not run; if it is longer than
// requestTime, of those that it runs too.
func Open(ctx context.Context, urls Sources, wait time.Duration, tracers ...pgx.QueryTracer) (*Store, error) {
	if err := CheckURL(urls.Database()); err != nil {
		return nil, err
	}
	d := &db{limit: max(requestTime, wait), operationLimit: max(acquireTimeout, wait)}
	var err error
	if d.recent, err = lru.New[uuid.UUID, recentClient](maxRecent); err != nil {
		return nil, err
	}
	probe := poolOptions(acquireTimeout, tracers)
	probe.Connections, probe.Probes = 1, true
	if d.probe, err = pg.Open(ctx, urls.Database, probe); err != nil {
		return nil, err
	}
	d.health = pg.NewWatch(d.Ping, wait)
	options := poolOptions(d.operationLimit, append(slices.Clone(tracers), d.health))
	options.Connections = maxConnections - 1
	if d.pool, err = pg.Open(ctx, urls.Database, options); err != nil {
		d.probe.Close()
		return nil, err
	}
	d.refreshes = d.pool
	if urls.Refreshes != nil {
		options.Connections, options.Check = maxRefreshConnections, d.checkSameDatabase
		if d.refreshes, err = pg.Open(ctx, urls.Refreshes, options); err == nil {
			d.nodes, err = openNodes(ctx, urls.Refreshes, options)
		}
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return &Store{d, newGrants(d), &Clients{d}, &Accounts{d}, &SignIns{d}, &Logs{d}}, nil
}

// newGrants makes the batchers of statements that concurrent callers share.
func newGrants(d *db) *Grants {
	g := &Grants{db: d}
	g.snapshots, g.introspections = batcher(d, g.readSnapshots), batcher(d, g.readIntrospections)
	g.activations = g.newStepBatcher(d.pool, "activate grant", activateSQL, false)
	g.advances = g.newStepBatcher(d.refreshes, "advance grant", advanceSQL, false)
	g.directActivations = g.newStepBatcher(d.pool, "activate grant", activateSQL, true)
	g.directAdvances = g.newStepBatcher(d.refreshes, "advance grant", advanceSQL, true)
	return g
}

func batcher[Q, A any](d *db, answer func(context.Context, []Q) ([]A, error)) pg.Batcher[Q, A] {
	return pg.Batcher[Q, A]{
		Answer: answer,
		Most:   maxBatch,
		AtOnce: 1,
		Within: d.operationLimit,
	}
}

// PoolStat returns the statistics of all connections except the one reserved for Ready and those of refreshes.
func (d *db) PoolStat() *pgxpool.Stat { return d.pool.Stat() }

// Close waits for the connections in use and closes them.
func (d *db) Close() {
	for _, pool := range d.nodes.pools {
		pool.Close()
	}
	if d.refreshes != nil {
		d.refreshes.Close()
	}
	d.pool.Close()
	d.probe.Close()
}

// Responds reports whether Postgres responded lately. It does no I/O.
func (d *db) Responds() bool { return !d.health.Silent() }

// Ping returns nil if Postgres answers before the context ends, and within acquireTimeout. Concurrent calls share one
// ping.
func (d *db) Ping(ctx context.Context) error {
	return unavailable("ping", d.pings.Ping(ctx, d.probe, acquireTimeout))
}

// Sources are the URLs of a store. Their users and passwords may change. Each new connection uses the current ones.
type Sources struct {
	Database credential.Source
	// Refreshes is for the statements of a refresh: the snapshot, and the step to the next generation. nil means
	// Database. It names the same database, with another role, or with other nodes of a distributed Postgres. That role
	// may commit without waiting for the disk, so the use of a code, which must survive a crash (G1), uses Database.
	Refreshes credential.Source
}

// Only returns the Sources of a URL that does not change.
func Only(url credential.Secret) Sources { return Sources{Database: credential.Fixed(url)} }

// maxRefreshConnections is the size of the pool of Sources.Refreshes.
const maxRefreshConnections = 8

// ErrOtherDatabase is the error of refreshes if Sources.Refreshes names another database. It does not have the
// grants, so a refresh would look like the use of a stolen token.
var ErrOtherDatabase = errors.New("ALMONER_REFRESH_DATABASE_URL names a different database than ALMONER_DATABASE_URL")

// CheckSameName returns an error if the URL for refreshes is invalid or names another database.
func CheckSameName(database, refreshes credential.Secret) error {
	other, err := pgx.ParseConfig(refreshes.Reveal())
	if err != nil {
		return errors.New("must look like postgres://user:password@host:5432/almoner")
	}
	if one, err := pgx.ParseConfig(database.Reveal()); err == nil && one.Database != other.Database {
		return errors.New("must name the same database as ALMONER_DATABASE_URL")
	}
	return nil
}

const (
	keyIDsSQL   = `select coalesce(array_agg(kid), '{}') from account.signing_keys`
	knowsKeySQL = `select cardinality($1::text[]) = 0
		or exists (select from account.signing_keys where kid = any ($1))`
)

// checkSameDatabase returns ErrOtherDatabase if the database of the connection has none of the signing keys of d.pool.
func (d *db) checkSameDatabase(ctx context.Context, c *pgx.Conn) error {
	ctx, cancel := d.withOperationLimit(ctx)
	defer cancel()
	var ids []string
	var same bool
	err := d.pool.QueryRow(ctx, keyIDsSQL).Scan(&ids)
	if err == nil {
		err = c.QueryRow(ctx, knowsKeySQL, ids).Scan(&same)
	}
	if err != nil {
		return fmt.Errorf("compare databases: %w", err)
	}
	if !same {
		return ErrOtherDatabase
	}
	return nil
}

// HasRefreshPool reports whether refreshes have their own pool.
func (d *db) HasRefreshPool() bool { return d.refreshes != d.pool }

// RefreshPoolStat returns the statistics of the connections for refreshes, without those of nodes.
func (d *db) RefreshPoolStat() *pgxpool.Stat { return d.refreshes.Stat() }

// PingRefreshes returns nil if the database for refreshes responds and is the same database as that of d.pool.
func (d *db) PingRefreshes(ctx context.Context) error {
	ctx, cancel := d.withOperationLimit(ctx)
	defer cancel()
	return unavailable("ping the database of refreshes", d.refreshes.Ping(ctx))
}

// Ready returns nil if Postgres answers and has every migration that this program knows. Once it has seen all
// migrations it does not query them again, because migrations only go forward. It fails without a query while the Watch
// treats Postgres as silent, because every statement is refused then. It uses a connection reserved for it, so that it
// does not wait for callers that hold the others.
func (d *db) Ready(ctx context.Context) error {
	if !d.Responds() {
		return unavailable("not responding; statements are refused", context.DeadlineExceeded)
	}
	if d.migrated.Load() {
		return d.Ping(ctx)
	}
	ctx, cancel := d.withOperationLimit(ctx)
	defer cancel()
	missing, err := schema.Missing(ctx, d.probe)
	if err != nil {
		return unavailable("read applied migrations", err)
	}
	if len(missing) > 0 {
		return fmt.Errorf("migrations are missing: %s; run migrate", strings.Join(missing, ", "))
	}
	d.migrated.Store(true)
	return nil
}

// Migrate applies the missing migrations as the owner of the database and returns their names.
func Migrate(ctx context.Context, url credential.Secret) ([]string, error) {
	applied, err := schema.Up(ctx, url.Reveal())
	if err != nil {
		err = fmt.Errorf("migrate the account schema: %w", err)
	}
	return applied, err
}

// SchemaState returns how the schema differs from what this program needs.
func SchemaState(ctx context.Context, url credential.Secret) (migrate.State, error) {
	return schema.Look(ctx, url.Reveal())
}

// tokensCarryWorkspace is the step after which codes and refresh tokens contain their workspace.
const tokensCarryWorkspace = "tokens_carry_workspace"

// finishSQL are the statements that must not run while a process of the previous release is running. Each can be
// repeated, and runs outside a transaction. The next release has them as migrations, because its upgrade begins after
// this upgrade is finished.
var finishSQL = []string{
	`create index concurrently if not exists grants_located on account.grants (id)`,
	`insert into account.finished_upgrades (name) values ('` + tokensCarryWorkspace + `') on conflict do nothing`,
	`drop index concurrently if exists account.grants_by_id`,
	`drop index concurrently if exists account.webhook_deliveries_by_id`,
}

// brokenSQL reports whether an interrupted call has left an invalid index.
const brokenSQL = `select exists (select from pg_index
	where indexrelid = to_regclass('account.grants_located') and not indisvalid)`

// FinishUpgrade completes the upgrade after the last process of the previous release has ended. It connects as the
// owner of the database, whose schema must be up to date. The previous release no longer works afterwards. It returns
// the number of users whose address has invisible characters or is another spelling of another user's address; it
// leaves these as they are.
func FinishUpgrade(ctx context.Context, url credential.Secret) (duplicates int, err error) {
	config, err := migrate.Config(url.Reveal())
	if err != nil {
		return 0, err
	}
	connection, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return 0, fmt.Errorf("finish the upgrade: %w", err)
	}
	defer func() { _ = connection.Close(context.WithoutCancel(ctx)) }()
	statements, broken := finishSQL, false
	if err := connection.QueryRow(ctx, brokenSQL).Scan(&broken); err != nil {
		return 0, fmt.Errorf("finish the upgrade: %w", err)
	}
	if broken {
		statements = slices.Insert(slices.Clone(statements), 0, `drop index concurrently account.grants_located`)
	}
	for _, statement := range statements {
		if _, err := connection.Exec(ctx, statement); err != nil {
			return 0, fmt.Errorf("finish the upgrade: %w", migrate.Explain(err))
		}
	}
	if duplicates, err = respell(ctx, connection); err != nil {
		return 0, fmt.Errorf("finish the upgrade: %w", migrate.Explain(err))
	}
	return duplicates, nil
}

// distributionJSON says which tables are distributed and copied, and which functions Citus must know, as a
// migrate.Distribution.
//
//go:embed distribution.json
var distributionJSON []byte

// Distribute distributes the tables of workspaces among the nodes of a Citus cluster and reports each step to out. It
// connects as the owner of the database. Other tables are copied to each node or, like sign-ins and queued e-mails,
// stay on the first node. It finishes the upgrade first, because the previous release does not work with a distributed
// database.
func Distribute(ctx context.Context, url credential.Secret, out io.Writer) error {
	found, err := migrate.HasCitus(ctx, url.Reveal())
	if err != nil {
		return err
	}
	if !found {
		return migrate.ErrNoCitus
	}
	if _, err := FinishUpgrade(ctx, url); err != nil {
		return err
	}
	return migrate.Distribute(ctx, url.Reveal(), distributionJSON, out)
}
