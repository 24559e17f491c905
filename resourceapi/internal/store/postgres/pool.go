package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/almonerhq/almoner/shared/batch"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/database/pg"
	"github.com/almonerhq/almoner/shared/inflight"
)

// Time limits. The client and the server cancel a statement after minTimeout, or after the time that callers wait for a
// Postgres that does not respond, whichever is longer.
const (
	minTimeout     = time.Second
	workTimeout    = 20 * time.Second // of the import worker, which no client waits for
	connectTimeout = 2 * time.Second  // or as long as a statement, if that is longer
	idleTimeout    = 5 * time.Second  // of a transaction between its statements, likewise
)

// A database is a pool of connections with the time limit of its statements.
type database struct {
	*pgxpool.Pool
	timeout time.Duration
}

// bounded returns a context that ends after the time limit and is not cancelled when the client disconnects.
func (d *database) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return bounded(ctx, d.timeout)
}

// A Store is the service's database. It is safe for concurrent use.
type Store struct {
	pool     *database
	searches *database // only for searches, so that they never hold every connection
	probe    *database // one connection for Answers and Ready, so that they do not wait for other callers
	pings    pg.Pinger
	health   *pg.Watch // of pool and searches

	turns *inflight.Requests[uuid.UUID] // of writes, by workspace

	reads batch.Batcher[readQuery, readResult]

	steps EventSteps

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

// OpenWithWait prepares pools of at most the given number of connections for the database of url (see shares). It does
// not connect: the service starts without its database and reports that. Errors quote no part of url, which contains a
// password. wait is the time that callers wait for a Postgres that does not respond (pg.NewWatch). Tracers see every
// statement.
func OpenWithWait(
	ctx context.Context, url string, connections int32, wait time.Duration, tracers ...pgx.QueryTracer,
) (*Store, error) {
	limits := Limits{Connections: connections, Wait: wait}
	return OpenFromSource(ctx, credential.Fixed(credential.Secret(url)), limits, tracers...)
}

// Limits are the limits of a Store.
type Limits struct {
	Connections int32
	Wait        time.Duration // for a Postgres that does not respond (OpenWithWait)
	Search      time.Duration // of a search; 0 means searchTime
}

// OpenFromSource is like OpenWithWait, for a URL whose user and password may change. Each new connection uses the
// current ones.
func OpenFromSource(
	ctx context.Context, url credential.Source, limits Limits, tracers ...pgx.QueryTracer,
) (*Store, error) {
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
		*pool = &database{opened, timeout}
	}
	s.reads = batch.Batcher[readQuery, readResult]{
		Answer: s.sendReads,
		Most:   maxReads,
		// As many as the CPUs can serve, leaving connections for everything else.
		AtOnce:    min(runtime.GOMAXPROCS(0), max(1, int(general)/2)),
		Within:    timeout,
		Alone:     timeout / 2,
		MostAlone: max(1, int(general)/4),
	}
	return s, nil
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
