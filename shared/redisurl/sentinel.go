package redisurl

import (
	"context"
	"errors"
	"net"

	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/shared/credential"
)

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

// DialHook implements goredis.Hook.
func (neverConnected) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := next(ctx, network, address)
		var known *net.OpError
		if err != nil && (!errors.As(err, &known) || known.Op != "dial") {
			err = &net.OpError{Op: "dial", Net: network, Err: err}
		}
		return connection, err
	}
}

// ProcessHook implements goredis.Hook.
func (neverConnected) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

// ProcessPipelineHook implements goredis.Hook.
func (neverConnected) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}
