// Package redisurl opens the go-redis client for a Redis URL.
//
// The URL has go-redis' format. Its query determines the kind of client:
//
//	redis://user:password@host:6379/0                                  one Redis
//	redis://user:password@host:6379?addr=second:6379&addr=third:6379   a Redis Cluster, with several of its nodes
//	redis://host:26379/0?master_name=almoner&password=…&addr=second:26379  a Redis with Sentinels
//
// In the last one the addresses, and a user name and a password before the host, are those of the Sentinels;
// username and password in the query are those of Redis itself, with special characters escaped. rediss:// is
// the same with TLS, also for the Sentinels: a certificate must be trusted by the system and valid for the
// first host in the URL.
//
// A client of this package uses only the master and does not retry: a script that is sent twice may run
// twice.
package redisurl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// Limits are the time limits of each step of a call and the number of connections to each server.
type Limits struct {
	// Dial limits connecting, Call each write and each read, and Pool the wait for a free connection.
	Dial, Call, Pool time.Duration
	Idle             time.Duration // unused connections are closed after this time; 0 means 30 minutes
	Connections      int
}

// ErrURL describes the expected format. It does not quote the URL, which contains a password.
var ErrURL = errors.New("the Redis URL must look like redis://:password@host:6379/0; for a Redis Cluster, like " +
	"redis://:password@host:6379?addr=second:6379&addr=third:6379; for Redis Sentinel, like " +
	"redis://:sentinelpassword@host:26379/0?master_name=almoner&password=password&addr=second:26379")

const (
	retriesNever = -1
	redirects    = 3 // of a cluster whose slots move; each counts as a try
)

// Open makes the client for a URL. It does not dial. The hooks see every try to reach a server, also the
// several tries of a cluster client for one command. The error is ErrURL.
func Open(address credential.Secret, limits Limits, hooks ...goredis.Hook) (goredis.UniversalClient, error) {
	return OpenFromSource(credential.Fixed(address), limits, hooks...)
}

// OpenFromSource is like Open, for a URL whose user and password may change. Each new connection to Redis uses the
// current ones. Connections to Sentinels use the first ones.
func OpenFromSource(source credential.Source, limits Limits, hooks ...goredis.Hook) (goredis.UniversalClient, error) {
	address := source()
	parsed, err := url.Parse(address.Reveal())
	if err != nil {
		return nil, ErrURL
	}
	switch query := parsed.Query(); {
	case query.Has("master_name"):
		return openSentinel(source, limits, hooks)
	case query.Has("addr"):
		return openCluster(source, limits, hooks)
	default:
		return openSingle(source, limits, hooks)
	}
}

func openSingle(source credential.Source, limits Limits, hooks []goredis.Hook) (goredis.UniversalClient, error) {
	options, err := goredis.ParseURL(source().Reveal())
	if err != nil {
		return nil, ErrURL
	}
	options.MaxRetries, options.DialerRetries = retriesNever, 1
	options.DisableIdentity, options.ContextTimeoutEnabled = true, true
	options.DialTimeout, options.PoolTimeout = limits.Dial, limits.Pool
	options.ReadTimeout, options.WriteTimeout = limits.Call, limits.Call
	options.PoolSize, options.ConnMaxIdleTime = limits.Connections, limits.Idle
	options.CredentialsProviderContext = credentials(source)
	client := goredis.NewClient(options)
	addHooks(client, hooks)
	return client, nil
}

// openCluster makes a cluster client. It must retry to follow moved slots, which its hooks see.
func openCluster(source credential.Source, limits Limits, hooks []goredis.Hook) (goredis.UniversalClient, error) {
	options, err := goredis.ParseClusterURL(source().Reveal())
	if err != nil || options.ReadOnly || options.RouteByLatency || options.RouteRandomly {
		return nil, ErrURL // a replica may be behind
	}
	options.MaxRetries, options.DialerRetries, options.MaxRedirects = retriesNever, 1, redirects
	options.DisableIdentity, options.ContextTimeoutEnabled = true, true
	options.DisableRoutingPolicies = true // each of our commands has exactly one key
	options.DialTimeout, options.PoolTimeout = limits.Dial, limits.Pool
	options.ReadTimeout, options.WriteTimeout = limits.Call, limits.Call
	options.PoolSize, options.ConnMaxIdleTime = limits.Connections, limits.Idle
	options.CredentialsProviderContext = credentials(source)
	client := goredis.NewClusterClient(options)
	client.OnNewNode(func(node *goredis.Client) { addHooks(node, hooks) })
	return client, nil
}

func addHooks(client *goredis.Client, hooks []goredis.Hook) {
	for _, hook := range hooks {
		client.AddHook(hook)
	}
}

// openSentinel makes a client that queries the Sentinels for the master whenever it connects, and leaves the
// old master when they name another.
func openSentinel(source credential.Source, limits Limits, hooks []goredis.Hook) (goredis.UniversalClient, error) {
	options, err := goredis.ParseFailoverURL(source().Reveal())
	if err != nil || options.MasterName == "" || options.ReplicaOnly || options.RouteByLatency ||
		options.RouteRandomly {
		return nil, ErrURL // a replica may be behind
	}
	options.MaxRetries, options.DialerRetries = retriesNever, 1
	options.DisableIdentity, options.ContextTimeoutEnabled = true, true
	// To connect, the client asks its Sentinel for the master twice, and then all Sentinels. With less time it would
	// never leave a Sentinel that does not respond.
	options.DialTimeout, options.PoolTimeout = limits.Dial+3*limits.Call, limits.Pool
	options.ReadTimeout, options.WriteTimeout = limits.Call, limits.Call
	options.PoolSize, options.ConnMaxIdleTime = limits.Connections, limits.Idle
	options.CredentialsProviderContext = credentials(source)
	client := goredis.NewFailoverClient(options)
	client.AddHook(neverConnected{})
	addHooks(client, hooks)
	return client, nil
}

// neverConnected turns every failure to connect into a dial error. A Sentinel that does not answer causes a
// read error, which would look to the caller as if the script might have run.
type neverConnected struct{}

func (neverConnected) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := next(ctx, network, address)
		if known, ok := errors.AsType[*net.OpError](err); err != nil && (!ok || known.Op != "dial") {
			err = &net.OpError{Op: "dial", Net: network, Err: err}
		}
		return connection, err
	}
}

func (neverConnected) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

func (neverConnected) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// credentials returns a function that go-redis calls for the user and password of each new connection.
func credentials(source credential.Source) func(context.Context) (user, password string, err error) {
	return func(context.Context) (string, string, error) { return login(source()) }
}

// login returns the user and password for Redis, not for Sentinels, in a URL.
func login(address credential.Secret) (user, password string, err error) {
	parsed, err := url.Parse(address.Reveal())
	if err != nil {
		return "", "", ErrURL
	}
	if !parsed.Query().Has("master_name") {
		password, _ = parsed.User.Password()
		return parsed.User.Username(), password, nil
	}
	options, err := goredis.ParseFailoverURL(address.Reveal())
	if err != nil {
		return "", "", ErrURL
	}
	return options.Username, options.Password, nil
}

// SameServers reports whether two URLs are equal except for the user and password of Redis. It returns ErrURL if a
// URL is not valid.
func SameServers(one, other credential.Secret) (bool, error) {
	client, err := Open(other, Limits{Connections: 1}) // checks the format; it does not dial
	if err != nil {
		return false, err
	}
	_ = client.Close()
	first, err := withoutLogin(one)
	if err != nil {
		return false, err
	}
	second, err := withoutLogin(other)
	return err == nil && first == second, err
}

func withoutLogin(address credential.Secret) (string, error) {
	parsed, err := url.Parse(address.Reveal())
	if err != nil {
		return "", ErrURL
	}
	query := parsed.Query()
	if query.Has("master_name") {
		query.Del("username")
		query.Del("password")
	} else {
		parsed.User = nil
	}
	parsed.RawQuery = query.Encode()
	return parsed.String(), nil
}

// LogTo sends go-redis' background messages about connections to log, for the whole process.
func LogTo(log *slog.Logger) { goredis.SetLogger(words{log}) }

type words struct{ log *slog.Logger }

// Printf implements go-redis' logger. Messages contain addresses and causes, and no command.
func (w words) Printf(ctx context.Context, format string, values ...any) {
	w.log.WarnContext(ctx, "go-redis: "+fmt.Sprintf(format, values...))
}
