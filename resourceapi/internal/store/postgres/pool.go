package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/singleflight"

	"github.com/almonerhq/almoner/shared/batch"
	"github.com/almonerhq/almoner/shared/inflight"
	"github.com/almonerhq/almoner/shared/pgstale"
	"github.com/almonerhq/almoner/shared/pguuid"
)

// Bounds of time. A statement that takes longer than patience is given up on both sides.
const (
	patience       = time.Second
	workPatience   = 20 * time.Second // of the import worker, which nobody waits for
	connectTimeout = 2 * time.Second
)

// A Store is the service's database. It is safe for concurrent use.
type Store struct {
	pool     *pgxpool.Pool
	searches *pgxpool.Pool // for searches alone, so that they never hold every connection
	probe    *pgxpool.Pool // one connection for Ready, so that it does not wait for those of callers
	pings    singleflight.Group

	turns *inflight.Requests[uuid.UUID] // of writes, by workspace

	trips batch.Batcher[trip, travelled]

	importPace atomic.Int64 // nanoseconds for each programme that the next import reckons with

	migrated atomic.Bool // every migration that this program knows was seen to be there
}

// errURL takes the place of the library's error, which quotes the URL.
var errURL = errors.New("the database URL is not one: postgres://user:password@host:port/database")

// CheckURL says whether Open could read the URL.
func CheckURL(url string) error {
	if _, err := pgxpool.ParseConfig(url); err != nil {
		return errURL
	}
	return nil
}

// Open prepares pools of at most connections for the database of url (shares says how they are shared out). It does not
// connect: the service starts without its database and says so. Errors quote no part of url, which holds a password.
// Tracers see every statement.
func Open(ctx context.Context, url string, connections int32, tracers ...pgx.QueryTracer) (*Store, error) {
	general, searching := shares(connections)
	s := &Store{turns: newTurns(general)}
	for _, p := range []struct {
		pool       **pgxpool.Pool
		most, idle int32
		parameters map[string]string
	}{
		{&s.pool, general, min(2, general), nil},
		{&s.searches, searching, 0, searchParameters},
		{&s.probe, 1, 0, nil},
	} {
		pool, err := openPool(ctx, url, p.most, p.idle, p.parameters, tracers)
		if err != nil {
			s.Close()
			return nil, err
		}
		*p.pool = pool
	}
	s.trips = batch.Batcher[trip, travelled]{
		Answer: s.travelTogether,
		Most:   mostTogether,
		AtOnce: min(
			runtime.GOMAXPROCS(0),
			max(1, int(general)/2),
		), // as many as can be served, and connections for everything else
		Within:    patience,
		Alone:     patience / 2,
		MostAlone: max(1, int(general)/4),
	}
	return s, nil
}

// shares says how many connections are for searches, and how many for everything else. One is for Ready. Of two or
// three connections in all, those two come on top.
func shares(connections int32) (general, searching int32) {
	if connections < 4 {
		return connections, 1
	}
	searching = connections / 4
	return connections - searching - 1, searching
}

func openPool(
	ctx context.Context,
	url string,
	most, idle int32,
	parameters map[string]string,
	tracers []pgx.QueryTracer,
) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errURL
	}
	config.MaxConns = most
	config.MinIdleConns = idle
	config.MaxConnLifetime = 30 * time.Minute
	config.MaxConnLifetimeJitter = 5 * time.Minute
	config.MaxConnIdleTime = 5 * time.Minute
	config.HealthCheckPeriod = 15 * time.Second
	config.PingTimeout = patience
	config.ShouldPing = pgstale.ShouldPing
	config.ConnConfig.ConnectTimeout = connectTimeout
	// Never the simple protocol, whatever the URL asks for: it puts values into the text of a statement.
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	for name, value := range map[string]string{
		"application_name":                    "almoner-resourceapi",
		"statement_timeout":                   "1s",
		"lock_timeout":                        fmt.Sprint(lockWithin.Milliseconds()),
		"idle_in_transaction_session_timeout": "5s",
	} {
		config.ConnConfig.RuntimeParams[name] = value
	}
	maps.Copy(config.ConnConfig.RuntimeParams, parameters)
	config.AfterConnect = func(_ context.Context, c *pgx.Conn) error {
		pguuid.Register(c.TypeMap())
		return nil
	}
	config.ConnConfig.Tracer = watchedBy(tracers)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, errors.New("the database pool cannot be made")
	}
	return pool, nil
}

// watchedBy lets tracers see what is asked of PostgreSQL.
func watchedBy(tracers []pgx.QueryTracer) pgx.QueryTracer {
	if len(tracers) == 0 {
		return nil
	}
	return multitracer.New(tracers...)
}

// PoolStat says how the connections are used that are for everything but searches and Ready.
func (s *Store) PoolStat() *pgxpool.Stat { return s.pool.Stat() }

// SearchPoolStat says how the connections for searches are used.
func (s *Store) SearchPoolStat() *pgxpool.Stat { return s.searches.Stat() }

// Close waits for the connections in use and closes all.
func (s *Store) Close() {
	for _, pool := range []*pgxpool.Pool{s.pool, s.searches, s.probe} {
		if pool != nil {
			pool.Close()
		}
	}
}

// Answers says whether Postgres answers, within a second. Concurrent calls share one question.
func (s *Store) Answers(ctx context.Context) error {
	_, err, _ := s.pings.Do("", func() (any, error) {
		ctx, cancel := bounded(ctx, patience)
		defer cancel()
		return nil, s.probe.Ping(ctx)
	})
	return outcome(err)
}

// bounded gives a statement its time, whatever becomes of the caller.
func bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}
