package stack

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/shared/config/redisurl"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/net/version"
)

// These are the services in the order of their migrations: authserver's create the roles that resourceapi's need.
const (
	authserver  = "authserver"
	resourceapi = "resourceapi"
)

// Flags returns the build flags of everything that is run or shipped (deploy/image/Dockerfile), for Go without C.
func Flags() []string { return []string{"-trimpath", "-tags=" + version.BuildTags} }

// Services returns the names of both services.
func Services() []string { return []string{authserver, resourceapi} }

// Build compiles both services of the repository at root into a directory, with Flags and further flags. An error
// contains the compiler's output.
func Build(ctx context.Context, root, into string, flags ...string) error {
	return BuildSome(ctx, root, into, Services(), flags...)
}

// BuildSome is Build for some of the services.
func BuildSome(ctx context.Context, root, into string, services []string, flags ...string) error {
	for _, service := range services {
		flags = append(flags, "./"+service+"/cmd/"+service)
	}
	return build(ctx, root, into, os.Environ(), flags...)
}

// BuildModule is Build for one service without the workspace, as its image is built. In the workspace, Go downloads the
// go.mod files of 700 more modules at the first build.
func BuildModule(ctx context.Context, root, into, service string) error {
	return build(ctx, filepath.Join(root, service), into, append(os.Environ(), "GOWORK=off"), "./cmd/"+service)
}

func build(ctx context.Context, dir, into string, environ []string, arguments ...string) error {
	into, err := filepath.Abs(into)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	arguments = slices.Concat([]string{"build", "-o", into + string(filepath.Separator)}, Flags(), arguments)
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Dir = dir
	command.Env = append(environ, "GOTOOLCHAIN=local", "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		output := strings.TrimSpace(string(out))
		if output == "" {
			output = "go printed nothing"
		}
		return fmt.Errorf("build the services: %w: %s", err, output)
	}
	return nil
}

// givenWithin limits the response time of a store named by the options.
const givenWithin = 5 * time.Second

// Check returns an error that would prevent Start and can be detected without starting anything: another stack in the
// same directory, a directory that is not writable, a port in use, or a given store that does not respond.
func Check(ctx context.Context, options Options) error {
	h, err := openHome(options.Home)
	if err != nil {
		return err
	}
	defer h.release()
	if _, err = choosePorts(options.Port); err != nil {
		return err
	}
	if options.RedisURL != "" {
		if err := askRedis(ctx, options.RedisURL); err != nil {
			return err
		}
	}
	if options.DatabaseURL == "" {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, givenWithin)
	defer cancel()
	db, err := pgx.Connect(within, options.DatabaseURL)
	if err != nil {
		return (&Stack{options: options}).explainDatabase(withoutURL(err))
	}
	return db.Close(context.WithoutCancel(ctx))
}

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
