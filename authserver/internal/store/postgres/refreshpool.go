package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/database/pg"
)

// Sources are the URLs of a store. Their users and passwords may change. Each new connection uses the current ones.
type Sources struct {
	Database credential.Source
	// Refreshes is for the statements of a refresh: the snapshot, and the step to the next generation. nil means
	// Database. It names the same database, with another role, or with other nodes of a distributed Postgres. That role
	// may commit without waiting for the disk, so the use of a code, which must survive a crash (G1), uses Database.
	Refreshes credential.Source
}

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

// openRefreshes returns the pool for refreshes: s.pool, unless refreshes have their own URL.
func (s *Store) openRefreshes(ctx context.Context, url credential.Source, o pg.Options) (*pgxpool.Pool, error) {
	if url == nil {
		return s.pool, nil
	}
	o.Connections, o.Check = maxRefreshConnections, s.checkSameDatabase
	return pg.Open(ctx, url, o)
}

const (
	keyIDsSQL   = `select coalesce(array_agg(kid), '{}') from account.signing_keys`
	knowsKeySQL = `select cardinality($1::text[]) = 0
		or exists (select from account.signing_keys where kid = any ($1))`
)

// checkSameDatabase returns ErrOtherDatabase if the database of the connection has none of the signing keys of s.pool.
func (s *Store) checkSameDatabase(ctx context.Context, c *pgx.Conn) error {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	var ids []string
	if err := s.pool.QueryRow(ctx, keyIDsSQL).Scan(&ids); err != nil {
		return fmt.Errorf("compare databases: %w", err)
	}
	var same bool
	if err := c.QueryRow(ctx, knowsKeySQL, ids).Scan(&same); err != nil {
		return fmt.Errorf("compare databases: %w", err)
	}
	if !same {
		return ErrOtherDatabase
	}
	return nil
}

// HasRefreshPool reports whether refreshes have their own pool.
func (s *Store) HasRefreshPool() bool { return s.refreshes != s.pool }

// RefreshPoolStat returns the statistics of the connections for refreshes.
func (s *Store) RefreshPoolStat() *pgxpool.Stat { return s.refreshes.Stat() }

// PingRefreshes returns nil if the database for refreshes responds and is the same database as that of s.pool.
func (s *Store) PingRefreshes(ctx context.Context) error {
	ctx, cancel := s.withOperationLimit(ctx)
	defer cancel()
	return unavailable("ping the database of refreshes", s.refreshes.Ping(ctx))
}
