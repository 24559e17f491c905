// Package postgres stores the records of this service in Postgres.
//
// It has one file per aggregate, with SQL by hand. Exported methods own their transactions and time limits. A caller
// that disconnects does not cancel a statement, because that would close a connection each time and leave it open
// whether a write was committed. This package does not authorize callers; every statement on a record names its
// workspace.
//
// Errors are the sentinels of the domain, an *apierr.Error of kind Unavailable if Postgres does not respond, or an
// internal error.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/database/pg"
	"github.com/almonerhq/almoner/shared/server/inflight"
)

// Time limits. The client and the server cancel a statement after minTimeout, or after the time that callers wait for a
// Postgres that does not respond, whichever is longer.
const (
	minTimeout     = time.Second
	workTimeout    = 20 * time.Second // of the import worker, which no client waits for
	connectTimeout = 2 * time.Second  // or as long as a statement, if that is longer
	idleTimeout    = 5 * time.Second  // of a transaction between its statements, likewise
)

// A database is a pool of connections. Each statement outside of a transaction has the time limit, and is not cancelled
// when the client disconnects.
type database struct {
	*pgxpool.Pool
	timeout     time.Duration
	distributed atomic.Bool // Postgres is distributed, and has refused a generic plan
}

// bounded returns a context that ends after the time limit and is not cancelled when the client disconnects.
func (d *database) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return bounded(ctx, d.timeout)
}

// Exec runs a statement.
func (d *database) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	ctx, cancel := d.bounded(ctx)
	defer cancel()
	return d.Pool.Exec(ctx, sql, args...)
}

// QueryRow returns the row of a statement. The caller must scan it.
func (d *database) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	ctx, cancel := d.bounded(ctx)
	return boundedRow{d.Pool.QueryRow(ctx, sql, args...), cancel}
}

type boundedRow struct {
	pgx.Row
	cancel context.CancelFunc
}

// Scan implements pgx.Row.
func (r boundedRow) Scan(targets ...any) error {
	defer r.cancel()
	return r.Row.Scan(targets...)
}

// Query returns the rows of a statement. The caller must close them.
func (d *database) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	ctx, cancel := d.bounded(ctx)
	rows, err := d.Pool.Query(ctx, sql, args...)
	if err != nil {
		cancel()
	}
	return boundedRows{rows, cancel}, err
}

type boundedRows struct {
	pgx.Rows
	cancel context.CancelFunc
}

// Close implements pgx.Rows.
func (r boundedRows) Close() {
	r.Rows.Close()
	r.cancel()
}

// transact is inTransaction, with the time limit as a whole.
func (d *database) transact(ctx context.Context, work func(*transaction)) error {
	ctx, cancel := d.bounded(ctx)
	defer cancel()
	return inTransaction(ctx, d, work)
}

// inTransaction runs work in a transaction and returns its error.
func inTransaction(ctx context.Context, d *database, work func(*transaction)) error {
	return pgx.BeginFunc(ctx, d, func(tx pgx.Tx) error {
		t := &transaction{Tx: tx, ctx: ctx}
		work(t)
		return t.err
	})
}

// A transaction runs the statements of one change. It keeps the first error: no statement runs after it, and the
// transaction is rolled back with it. So a change checks only the results on which it depends. The first argument of a
// statement says what it does, and is the prefix of its error unless it is "".
type transaction struct {
	pgx.Tx
	ctx context.Context
	err error
}

// fail ends the transaction with an error. It does nothing if the error is nil.
func (t *transaction) fail(what string, err error) {
	if t.err != nil || err == nil {
		return
	}
	t.err = err
	if what != "" {
		t.err = fmt.Errorf("%s: %w", what, err)
	}
}

// require ends the transaction with an error unless ok is true.
func (t *transaction) require(ok bool, err error) {
	if !ok {
		t.fail("", err)
	}
}

// exec runs a statement and returns the number of its rows.
func (t *transaction) exec(what, sql string, args ...any) int64 {
	if t.err != nil {
		return 0
	}
	tag, err := t.Exec(t.ctx, sql, args...)
	t.fail(what, err)
	return tag.RowsAffected()
}

// A row is the row of a query in a transaction.
type row struct {
	*transaction
	what, sql string
	args      []any
}

func (t *transaction) row(what, sql string, args ...any) row { return row{t, what, sql, args} }

// find reads the row into targets, and returns false if there is none.
func (r row) find(targets ...any) bool {
	if r.err != nil {
		return false
	}
	err := r.QueryRow(r.ctx, r.sql, r.args...).Scan(targets...)
	if errors.Is(err, pgx.ErrNoRows) {
		return false
	}
	r.fail(r.what, err)
	return err == nil
}

// read is find for a row that must be there.
func (r row) read(targets ...any) {
	if !r.find(targets...) {
		r.fail(r.what, pgx.ErrNoRows)
	}
}

// oneOf returns the row of a query in a transaction. The error of the transaction is missing if there is none.
func oneOf[T any](t *transaction, what string, missing error, scan pgx.RowToFunc[T], sql string, args ...any) (one T) {
	if all := rowsOf(t, what, scan, sql, args...); len(all) > 0 {
		return all[0]
	}
	t.fail("", missing)
	return one
}

// rowsOf returns the rows of a query in a transaction.
func rowsOf[T any](t *transaction, what string, scan pgx.RowToFunc[T], sql string, args ...any) (all []T) {
	if t.err == nil {
		var err error
		all, err = allRows(t.ctx, t, scan, sql, args...)
		t.fail(what, err)
	}
	return all
}

// querier is the common interface of a pool and a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// oneRow runs a statement that returns at most one row. It returns missing if there is none. outcome has translated its
// error.
func oneRow[T any](
	ctx context.Context, db *database, missing error, scan pgx.RowToFunc[T], text string, args ...any,
) (T, error) {
	rows, _ := db.Query(ctx, text, args...) // the rows have the error
	one, err := pgx.CollectExactlyOneRow(rows, scan)
	if errors.Is(err, pgx.ErrNoRows) {
		err = missing
	}
	return one, outcome(err)
}

// optional returns the row of oneRow, or nil if the error is pgx.ErrNoRows.
func optional[T any](one T, err error) (*T, error) {
	if err == nil {
		return &one, nil
	}
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return nil, err
}

// allRows runs a statement and returns its rows.
func allRows[T any](ctx context.Context, db querier, scan pgx.RowToFunc[T], text string, args ...any) ([]T, error) {
	rows, _ := db.Query(ctx, text, args...) // the rows have the error
	return pgx.CollectRows(rows, scan)
}

// exec runs a statement. what says what it does, and is the prefix of its error.
func (s *Store) exec(ctx context.Context, what, sql string, args ...any) error {
	if _, err := s.pool.Exec(ctx, sql, args...); err != nil {
		return outcome(fmt.Errorf("%s: %w", what, err))
	}
	return nil
}

// A Store is the service's database. It is safe for concurrent use.
type Store struct {
	pool     *database
	searches *database // only for searches, so that they never hold every connection
	probe    *database // one connection for Answers and Ready, so that they do not wait for other callers
	pings    pg.Pinger
	health   *pg.Watch // of pool and searches

	turns *inflight.Requests[uuid.UUID] // of writes, by workspace

	reads pg.Batcher[readQuery, readResult]

	steps eventSteps

	importPace atomic.Int64 // estimated nanoseconds per programme for the next import

	migrated atomic.Bool // all known migrations were seen applied
}

// errURL replaces the library's error, which quotes the URL.
var errURL = errors.New("the database URL is not one: postgres://user:password@host:port/database")

// CheckURL reports whether Open could parse the URL.
func CheckURL(url string) error {
	if _, err := pgxpool.ParseConfig(url); err != nil {
		return errURL
	}
	return nil
}

// Limits are the limits of a Store.
type Limits struct {
	Connections int32         // at most (see shares)
	Wait        time.Duration // of callers for a Postgres that does not respond (pg.NewWatch)
	Search      time.Duration // of a search; 0 means searchTime
}

// Open prepares pools for the database of url, whose user and password may change: each new connection uses the current
// ones. It does not connect: the service starts without its database and reports that. Errors quote no part of url,
// which contains a password. Tracers see every statement.
func Open(ctx context.Context, url credential.Source, limits Limits, tracers ...pgx.QueryTracer) (*Store, error) {
	if err := CheckURL(url().Reveal()); err != nil {
		return nil, err
	}
	general, searching := shares(limits.Connections)
	s := &Store{turns: newTurns(general), steps: defaultEventSteps}
	s.health = pg.NewWatch(s.Ping, limits.Wait)
	watched := append(slices.Clone(tracers), s.health)
	timeout := max(minTimeout, limits.Wait)
	searches := parameters(timeout)
	maps.Copy(searches, searchParameters(cmp.Or(limits.Search, searchTime)))
	for pool, options := range map[**database]pg.Options{
		&s.pool:     {Connections: general, Idle: min(2, general), Tracers: watched},
		&s.searches: {Connections: searching, Parameters: searches, Tracers: watched},
		&s.probe:    {Connections: 1, Probes: true, Tracers: tracers},
	} {
		options.Name, options.Ping, options.Connect = "almoner-resourceapi", timeout, max(connectTimeout, timeout)
		if options.Parameters == nil {
			options.Parameters = parameters(timeout)
		}
		opened, err := pg.Open(ctx, url, options)
		if err != nil {
			s.Close()
			return nil, err
		}
		*pool = &database{Pool: opened, timeout: timeout}
	}
	s.reads.Answer = s.sendReads
	limitReads(&s.reads, s.pool)
	return s, nil
}

// limitReads sets the limits of a Batcher of reads.
func limitReads[Q, A any](b *pg.Batcher[Q, A], pool *database) {
	general := int(pool.Config().MaxConns)
	b.Most = maxReads
	// As many as the CPUs can serve, leaving connections for everything else.
	b.AtOnce = min(runtime.GOMAXPROCS(0), max(1, general/2))
	b.Within, b.Alone, b.MostAlone = pool.timeout, pool.timeout/2, max(1, general/4)
}

// shares returns how many connections are for searches and how many for everything else. One is for Ready. With fewer
// than four connections, the one for searches and the one for Ready are added to them.
func shares(connections int32) (general, searching int32) {
	if connections < 4 {
		return connections, 1
	}
	searching = connections / 4
	return connections - searching - 1, searching
}

// parameters are the settings of a connection.
func parameters(timeout time.Duration) map[string]string {
	return map[string]string{
		"statement_timeout":                   fmt.Sprint(timeout.Milliseconds()),
		"lock_timeout":                        fmt.Sprint(lockWithin(timeout).Milliseconds()),
		"idle_in_transaction_session_timeout": fmt.Sprint(max(idleTimeout, timeout).Milliseconds()),
	}
}

// PoolStat returns statistics of the general connections: all but those for searches and Ready.
func (s *Store) PoolStat() *pgxpool.Stat { return s.pool.Stat() }

// SearchPoolStat returns statistics of the connections for searches.
func (s *Store) SearchPoolStat() *pgxpool.Stat { return s.searches.Stat() }

// Close waits for the connections in use and closes all.
func (s *Store) Close() {
	for _, pool := range []*database{s.pool, s.searches, s.probe} {
		if pool != nil {
			pool.Close()
		}
	}
}

// Ping checks whether Postgres responds before the context ends, and within its time limit. Concurrent calls share one
// ping.
func (s *Store) Ping(ctx context.Context) error {
	return outcome(s.pings.Ping(ctx, s.probe.Pool, s.probe.timeout))
}

// bounded returns a context with a time limit that is not cancelled when the client disconnects.
func bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

// These are SQLSTATEs (PostgreSQL, appendix A).
const (
	lockNotAvailable    = "55P03" // a lock timeout
	featureNotSupported = "0A000"
)

// outcome turns a failure to reach Postgres into an error that invites a retry. Otherwise an outage would look like a
// refusal or a bug.
func outcome(err error) error {
	if err == nil || !unavailable(err) {
		return err
	}
	return &apierr.Error{
		Kind:    apierr.Unavailable,
		Cause:   err,
		Message: "The service cannot reach its database at the moment. Try again in a few seconds.",
	}
}

func unavailable(err error) bool {
	if fault, ok := errors.AsType[*pgconn.PgError](err); ok {
		return temporary(fault.Code) || lostNode(fault)
	}
	_, refused := errors.AsType[*pgconn.ConnectError](err)
	_, lost := errors.AsType[net.Error](err)
	return refused || lost || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || pgconn.SafeToRetry(err)
}

// refusedBy reports whether a constraint of the table refused a statement with the SQLSTATE. In a distributed database
// the name of the table may end in the number of a shard, or be missing.
func refusedBy(err error, code, table string) bool {
	fault, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || fault.Code != code {
		return false
	}
	shard, found := strings.CutPrefix(fault.TableName, table)
	return fault.TableName == "" || found && strings.Trim(shard, "_0123456789") == ""
}

// lostNode reports whether Citus refused a statement or a commit because it lost the connection to a node. These errors
// have the SQLSTATE of an internal error.
func lostNode(fault *pgconn.PgError) bool {
	return fault.Code == "XX000" && (strings.HasPrefix(fault.Message, "failure on connection marked as essential") ||
		strings.HasPrefix(fault.Message, "execution cannot recover from multiple connection failures") ||
		strings.HasPrefix(fault.Message, "server closed the connection unexpectedly") ||
		strings.HasPrefix(fault.Message, "could not commit transaction "))
}

// temporary reports whether an SQLSTATE (PostgreSQL, appendix A) describes a temporary condition.
func temporary(code string) bool {
	if len(code) != 5 {
		return false
	}
	switch code[:2] {
	case "08", // connection
		"53", // out of connections, memory or disk
		"57", // shut down, starting up, cancelled by a time limit
		"58": // the server's operating system
		return true
	}
	switch code {
	case "25006", // read-only: a standby that is not yet the primary
		"25P03", "25P04", // idle too long, transaction too long
		"40001", "40P01", // serialisation, deadlock
		lockNotAvailable,
		featureNotSupported: // a cached plan after a migration: a retry plans again
		return true
	}
	return false
}
