// Package redisurl answers: which client does a Redis URL mean?
//
// The URL is in go-redis' own form, and what is in its query says what it names:
//
//	redis://user:password@host:6379/0                                        one Redis
//	redis://user:password@host:6379?addr=second:6379&addr=third:6379         a Redis Cluster, by several of its nodes
//	redis://host:26379/0?master_name=almoner&password=…&addr=second:26379    a Redis that Sentinels watch over
//
// In the last one the addresses are the Sentinels', and so are a user name and a password before the host; username and
// password in the query are those of Redis itself, with whatever is special in a URL escaped. rediss:// is the same
// with TLS, to the Sentinels too: certificates are believed if the system believes them and they are valid for the
// first host that is named.
//
// A client from here asks the master alone and tries nothing again: a script that is sent twice has run twice.
package redisurl

import (
	"errors"
	"net/url"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/shared/credential"
)

// Limits are what a client may take: time for each step of a call, and connections to each server.
type Limits struct {
	// for connecting; for writing and for reading, each; for waiting until a connection is free
	Dial, Call, Pool time.Duration
	Idle             time.Duration // after which an unused connection is closed; 0 means the library's 30 minutes
	Connections      int
}

// ErrURL says what is expected. It holds nothing of the URL, which has a password in it.
var ErrURL = errors.New(
	"the Redis URL cannot be read: it looks like redis://:password@host:6379/0, or, for a Redis Cluster, like " +
		"redis://:password@host:6379?addr=second:6379&addr=third:6379, or, for Redis Sentinel, like " +
		"redis://:sentinelpassword@host:26379/0?master_name=almoner&password=password&addr=second:26379",
)

const (
	retriesNever = -1
	redirects    = 3 // of a cluster whose slots move; each is a try of its own
)

// Open makes the client that the URL means. It does not dial. hooks see every try to reach a server, also where a
// cluster's client makes several of one command. The error is ErrURL.
func Open(address credential.Secret, limits Limits, hooks ...goredis.Hook) (goredis.UniversalClient, error) {
	parsed, err := url.Parse(address.Reveal())
	if err != nil {
		return nil, ErrURL
	}
	switch query := parsed.Query(); {
	case query.Has("master_name"):
		return openSentinel(address, limits, hooks)
	case query.Has("addr"):
		return openCluster(address, limits, hooks)
	default:
		return openSingle(address, limits, hooks)
	}
}

func openSingle(address credential.Secret, limits Limits, hooks []goredis.Hook) (goredis.UniversalClient, error) {
	options, err := goredis.ParseURL(address.Reveal())
	if err != nil {
		return nil, ErrURL
	}
	options.MaxRetries, options.DialerRetries = retriesNever, 1
	options.DisableIdentity, options.ContextTimeoutEnabled = true, true
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = limits.Dial, limits.Call, limits.Call, limits.Pool
	options.PoolSize, options.ConnMaxIdleTime = limits.Connections, limits.Idle
	client := goredis.NewClient(options)
	addHooks(client, hooks)
	return client, nil
}

// openCluster makes a client that follows the slots. To follow them it must try again, which its hooks see.
func openCluster(address credential.Secret, limits Limits, hooks []goredis.Hook) (goredis.UniversalClient, error) {
	options, err := goredis.ParseClusterURL(address.Reveal())
	if err != nil || options.ReadOnly || options.RouteByLatency || options.RouteRandomly {
		return nil, ErrURL // what a replica says may be of the past
	}
	options.MaxRetries, options.DialerRetries, options.MaxRedirects = retriesNever, 1, redirects
	options.DisableIdentity, options.ContextTimeoutEnabled = true, true
	options.DisableRoutingPolicies = true // every command of ours has its one key
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = limits.Dial, limits.Call, limits.Call, limits.Pool
	options.PoolSize, options.ConnMaxIdleTime = limits.Connections, limits.Idle
	client := goredis.NewClusterClient(options)
	client.OnNewNode(func(node *goredis.Client) { addHooks(node, hooks) })
	return client, nil
}

func addHooks(client *goredis.Client, hooks []goredis.Hook) {
	for _, hook := range hooks {
		client.AddHook(hook)
	}
}
