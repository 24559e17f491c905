package stack

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/deploy/local/seed"
	"github.com/almonerhq/almoner/shared/config/redisurl"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

const (
	databaseName = "almoner"
	ownerRole    = "almoner_owner"
)

// startStores starts the stores that the options do not name, and returns the URLs of the database owner and of Redis.
func (s *Stack) startStores(ctx context.Context) (owner, redis string, err error) {
	owner, redis = s.options.DatabaseURL, s.options.RedisURL
	if redis != "" {
		if err := askRedis(ctx, redis); err != nil {
			return "", "", err
		}
	}
	if owner == "" {
		s.options.say("starting PostgreSQL")
		s.Postgres, err = localstore.StartPostgres(ctx, s.storeOptions("postgres"))
		if err != nil {
			return "", "", err
		}
		if owner, err = ensureDatabase(ctx, s.Postgres.URL, s.home.seed); err != nil {
			return "", "", err
		}
	}
	if redis == "" {
		s.options.say("starting Redis")
		s.Redis, err = localstore.StartRedis(ctx, s.storeOptions("redis"))
		if err != nil {
			return "", "", err
		}
		redis = s.Redis.URL
	}
	return owner, redis, nil
}

// askRedis returns an error if a Redis does not respond. The error names the setting and the address, and no password.
func askRedis(ctx context.Context, address string) error {
	client, err := redisurl.Open(credential.Secret(address), redisurl.Limits{
		Dial:        givenWithin,
		Call:        givenWithin,
		Pool:        givenWithin,
		Connections: 1,
	})
	if err != nil {
		return fmt.Errorf("ALMONER_REDIS_URL: %w", err)
	}
	defer func() { _ = client.Close() }()
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("cannot connect to the Redis of ALMONER_REDIS_URL (%w), which is needed to connect "+
			"applications and refresh tokens: start it, correct the URL, or unset ALMONER_REDIS_URL, so that make run "+
			"starts its own Redis", err)
	}
	return nil
}

func (s *Stack) storeOptions(name string) localstore.Options {
	return localstore.Options{
		Dir:      filepath.Join(s.home.stores, name),
		Tools:    s.options.Tools,
		Volatile: s.options.Volatile,
	}
}

// ensureDatabase creates the database and its owner in a private server. The owner is no superuser, as in a deployment.
func ensureDatabase(ctx context.Context, superuser string, s seed.Seed) (string, error) {
	db, err := pgx.Connect(ctx, superuser)
	if err != nil {
		return "", fmt.Errorf("create the database: %w", err)
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	password := s.Hex("database owner")
	if err := ensureRole(ctx, db, ownerRole, password, "createrole"); err != nil {
		return "", err
	}
	var exists bool
	row := db.QueryRow(ctx, "select exists (select from pg_database where datname = $1)", databaseName)
	if err := row.Scan(&exists); err != nil {
		return "", fmt.Errorf("create the database: %w", err)
	}
	if !exists {
		if _, err := db.Exec(ctx, "create database "+databaseName+" owner "+ownerRole); err != nil {
			return "", fmt.Errorf("create the database: %w", err)
		}
	}
	return withLogin(superuser, ownerRole, password, databaseName)
}

// withLogin returns the URL for another user and, unless database is "", another database.
func withLogin(base, role, password, database string) (string, error) {
	parsed, err := url.Parse(base)
	if err != nil || (parsed.Scheme != "postgres" && parsed.Scheme != "postgresql") {
		return "", fmt.Errorf("ALMONER_DATABASE_URL must be a URL like postgres://user:password@127.0.0.1:5432/name")
	}
	parsed.User = url.UserPassword(role, password)
	if database != "" {
		parsed.Path = "/" + database
	}
	return parsed.String(), nil
}
