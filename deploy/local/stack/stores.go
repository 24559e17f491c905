package stack

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/shared/config/redisurl"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// givenWithin limits the response time of a store named by the options.
const givenWithin = 5 * time.Second

const (
	databaseName = "almoner"
	ownerRole    = "almoner_owner"
)

// startStores starts the stores that the options do not name.
func (s *Stack) startStores(ctx context.Context) (err error) {
	s.DatabaseURL, s.RedisURL = s.options.DatabaseURL, s.options.RedisURL
	if err := s.askRedis(ctx); err != nil {
		return err
	}
	if s.DatabaseURL == "" {
		s.options.say("starting PostgreSQL")
		if s.Postgres, err = localstore.StartPostgres(ctx, s.storeOptions("postgres")); err != nil {
			return err
		}
		if s.DatabaseURL, err = ensureDatabase(ctx, s.Postgres.URL, s.home.seed); err != nil {
			return err
		}
	}
	if s.RedisURL == "" {
		s.options.say("starting Redis")
		if s.Redis, err = localstore.StartRedis(ctx, s.storeOptions("redis")); err != nil {
			return err
		}
		s.RedisURL = s.Redis.URL
	}
	return nil
}

// askRedis returns an error if the options name a Redis that does not respond. The error names the setting and the
// address, and no password.
func (s *Stack) askRedis(ctx context.Context) error {
	if s.options.RedisURL == "" {
		return nil
	}
	client, err := redisurl.Open(credential.Secret(s.options.RedisURL), redisurl.Limits{
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
func ensureDatabase(ctx context.Context, superuser string, s demo.Seed) (string, error) {
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

// checkRights returns a clear error early instead of a SQL error later.
func checkRights(ctx context.Context, owner *pgx.Conn) error {
	var user, database string
	var roles, schemas bool
	query := owner.QueryRow(ctx, `select current_user, current_database(), rolsuper or rolcreaterole,
			has_database_privilege(current_database(), 'create') from pg_roles where rolname = current_user`)
	err := query.Scan(&user, &database, &roles, &schemas)
	if err != nil {
		return fmt.Errorf("read the database user's rights: %w", err)
	}
	if !roles {
		return fmt.Errorf("the database user %s may not create roles, which is needed to create one for each service: "+
			"run as a superuser: alter role %s createrole", user, pgx.Identifier{user}.Sanitize())
	}
	if !schemas {
		return fmt.Errorf("the database user %s may not create schemas in %s: use a database that the user owns", user,
			database)
	}
	return nil
}

// loginFor creates the role as which a service of this installation connects, a member of the service's group role,
// which the migrations create. It returns the service's URL.
func (s *Stack) loginFor(ctx context.Context, owner *pgx.Conn, ownerURL, service string) (string, error) {
	// A server may hold several installations, so the name contains the fingerprint.
	role := "almoner_" + s.home.seed.Fingerprint()[:8] + "_" + service
	password := s.home.seed.Hex("database " + service)
	if err := ensureRole(ctx, owner, role, password, ""); err != nil {
		return "", err
	}
	group := pgx.Identifier{"almoner_" + service}.Sanitize()
	if _, err := owner.Exec(ctx, "grant "+group+" to "+pgx.Identifier{role}.Sanitize()); err != nil {
		return "", fmt.Errorf(
			"the database user may not grant the role %s, which another user created: use that user or a superuser: %w",
			group, err)
	}
	serviceURL, err := withLogin(ownerURL, role, password, "")
	if err != nil {
		return "", err
	}
	probe, err := pgx.Connect(ctx, serviceURL)
	if err != nil {
		return "", fmt.Errorf("the role %s of %s cannot connect to the database: %w", role, service, withoutURL(err))
	}
	return serviceURL, probe.Close(ctx)
}

// ensureRole creates a role that can log in, or sets its password. The server gets a SCRAM verifier instead of the
// password, which it might log.
func ensureRole(ctx context.Context, db *pgx.Conn, role, password, options string) error {
	verifier, err := scramVerifier(password)
	if err != nil {
		return err
	}
	name := pgx.Identifier{role}.Sanitize()
	_, err = db.Exec(ctx, "create role "+name)
	if fault, ok := errors.AsType[*pgconn.PgError](err); err != nil &&
		(!ok || fault.Code != "42710") { // duplicate_object
		return fmt.Errorf("create the database role %s: %w", role, err)
	}
	if _, err := db.Exec(ctx, "alter role "+name+" login "+options+" password '"+verifier+"'"); err != nil {
		return fmt.Errorf("create the database role %s: %w", role, err)
	}
	return nil
}

// scramVerifier returns the form in which PostgreSQL stores a password (RFC 5803): base64 and a few symbols, which need
// no quoting.
func scramVerifier(password string) (string, error) {
	const iterations = 4096 // PostgreSQL's default
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails (crypto/rand)
	salted, err := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	if err != nil {
		return "", fmt.Errorf("hash a database password: %w", err)
	}
	keyed := func(text string) []byte {
		mac := hmac.New(sha256.New, salted)
		mac.Write([]byte(text))
		return mac.Sum(nil)
	}
	stored := sha256.Sum256(keyed("Client Key"))
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", iterations, encode(salt), encode(stored[:]),
		encode(keyed("Server Key"))), nil
}

// withoutURL returns the cause of a failed connection without its address and user.
func withoutURL(err error) error {
	if fault, ok := errors.AsType[*pgconn.PgError](err); ok {
		return errors.New(fault.Message)
	}
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(next) {
		err = next
	}
	return err
}

// prepareDatabase claims the database, migrates its schema and writes the demo data.
func (s *Stack) prepareDatabase(ctx context.Context) error {
	owner, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = owner.Close(context.WithoutCancel(ctx)) }()
	if err := checkRights(ctx, owner); err != nil {
		return err
	}
	if err := demo.Claim(ctx, owner, s.home.seed); err != nil {
		return err
	}
	for _, service := range Services() {
		if s.options.EarlierBinaries != "" {
			err = s.Migrate(ctx, service, s.options.EarlierBinaries)
		}
		if err == nil {
			err = s.Migrate(ctx, service, s.options.Binaries)
		}
		if err != nil {
			return err
		}
		if s.logins[service], err = s.loginFor(ctx, owner, s.DatabaseURL, service); err != nil {
			return err
		}
	}
	if s.Demo, err = demo.Describe(s.home.seed, s.BaseURL, s.AppURL); err != nil {
		return err
	}
	return demo.Insert(ctx, owner, s.home.seed, &s.Demo, time.Now())
}

// connect connects as the database's owner. An error names the setting of an unusable database and says what to do.
func (s *Stack) connect(ctx context.Context) (*pgx.Conn, error) {
	owner, err := pgx.Connect(ctx, s.DatabaseURL)
	if err == nil {
		return owner, nil
	}
	cause := withoutURL(err)
	if s.options.DatabaseURL == "" {
		return nil, fmt.Errorf("the database is not reachable: %w", cause)
	}
	where := ""
	if config, err := pgx.ParseConfig(s.options.DatabaseURL); err == nil {
		where = " at " + net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
	}
	first, _, _ := strings.Cut(cause.Error(), "\n") // pgx repeats it for each way to connect
	return nil, fmt.Errorf("cannot connect to the database of ALMONER_DATABASE_URL%s (%s): start it, correct the URL, "+
		"or unset ALMONER_DATABASE_URL, so that make run starts its own PostgreSQL", where, first)
}
