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
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/singleflight"

	"github.com/almonerhq/almoner/shared/batch"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/inflight"
	"github.com/almonerhq/almoner/shared/pghealth"
	"github.com/almonerhq/almoner/shared/pguuid"
	"github.com/almonerhq/almoner/shared/secretfile"
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
	pings    singleflight.Group
	health   *pghealth.Watch // of pool and searches

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

// Open prepares pools of at most the given number of connections for the database of url (see shares). It does not
// connect: the service starts without its database and reports that. Errors quote no part of url, which contains a
// password. Tracers see every statement.
func Open(ctx context.Context, url string, connections int32, tracers ...pgx.QueryTracer) (*Store, error) {
	return OpenWithWait(ctx, url, connections, 0, tracers...)
}

// OpenWithWait is Open with the time that callers wait for a Postgres that does not respond (pghealth.NewWatch).
func OpenWithWait(
	ctx context.Context,
	url string,
	connections int32,
	wait time.Duration,
	tracers ...pgx.QueryTracer,
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
	ctx context.Context,
	url credential.Source,
	limits Limits,
	tracers ...pgx.QueryTracer,
) (*Store, error) {
	general, searching := shares(limits.Connections)
	s := &Store{turns: newTurns(general), steps: defaultEventSteps}
	s.health = pghealth.NewWatch(s.Ping, limits.Wait)
	watched := append(slices.Clone(tracers), s.health)
	timeout := max(minTimeout, limits.Wait)
	for pool, options := range map[**database]poolOptions{
		&s.pool: {
			connections: general,
			idle:        min(2, general),
			shouldPing:  pghealth.ShouldPing,
			tracers:     watched,
		},
		&s.searches: {
			connections: searching,
			parameters:  searchParameters(cmp.Or(limits.Search, searchTime)),
			shouldPing:  pghealth.ShouldPing,
			tracers:     watched,
		},
		&s.probe: {
			connections: 1,
			shouldPing:  pghealth.ShouldPingProbe,
			tracers:     tracers,
		},
	} {
		var err error
		if *pool, err = openPool(ctx, url, timeout, options); err != nil {
			s.Close()
			return nil, err
		}
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

// poolOptions are what differs between the pools.
type poolOptions struct {
	connections int32 // maximum
	idle        int32 // minimum
	parameters  map[string]string
	shouldPing  func(context.Context, pgxpool.ShouldPingParams) bool
	tracers     []pgx.QueryTracer
}

func openPool(
	ctx context.Context, url credential.Source, timeout time.Duration, o poolOptions,
) (*database, error) {
	config, err := pgxpool.ParseConfig(url().Reveal())
	if err != nil {
		return nil, errURL
	}
	pghealth.RequirePrimary(&config.ConnConfig.Config)
	config.BeforeConnect = secretfile.BeforeConnect(url)
	config.MaxConns = o.connections
	config.MinIdleConns = o.idle
	config.MaxConnLifetime = 30 * time.Minute
	config.MaxConnLifetimeJitter = 5 * time.Minute
	config.MaxConnIdleTime = 5 * time.Minute
	config.HealthCheckPeriod = 15 * time.Second
	config.PingTimeout = timeout
	config.ShouldPing = o.shouldPing
	config.ConnConfig.ConnectTimeout = max(connectTimeout, timeout)
	// Never the simple protocol, whatever the URL says: it inserts values into the text of a statement.
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	for name, value := range map[string]string{
		"application_name":                    "almoner-resourceapi",
		"statement_timeout":                   fmt.Sprint(timeout.Milliseconds()),
		"lock_timeout":                        fmt.Sprint(lockWithin(timeout).Milliseconds()),
		"idle_in_transaction_session_timeout": fmt.Sprint(max(idleTimeout, timeout).Milliseconds()),
	} {
		config.ConnConfig.RuntimeParams[name] = value
	}
	maps.Copy(config.ConnConfig.RuntimeParams, o.parameters)
	config.AfterConnect = func(_ context.Context, c *pgx.Conn) error {
		pguuid.Register(c.TypeMap())
		return nil
	}
	config.ConnConfig.Tracer = combineTracers(o.tracers)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, errors.New("the database pool cannot be made")
	}
	return &database{pool, timeout}, nil
}

// combineTracers combines the tracers of Postgres statements.
func combineTracers(tracers []pgx.QueryTracer) pgx.QueryTracer {
	if len(tracers) == 0 {
		return nil
	}
	return multitracer.New(tracers...)
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
	shared := s.pings.DoChan("", func() (any, error) {
		ctx, cancel := s.probe.bounded(ctx)
		defer cancel()
		return nil, s.probe.Ping(ctx)
	})
	select {
	case ping := <-shared:
		return outcome(ping.Err)
	case <-ctx.Done():
		return outcome(ctx.Err())
	}
}

// bounded returns a context with a time limit that is not cancelled when the client disconnects.
func bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}
