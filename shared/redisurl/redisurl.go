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
	"errors"
	"net/url"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/shared/credential"
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
