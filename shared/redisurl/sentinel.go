package redisurl

import (
	"context"
	"errors"
	"net"

	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/shared/credential"
)

// openSentinel makes a client that asks the Sentinels where the master is whenever it connects, and leaves its
// connections to the old one when they name another.
func openSentinel(address credential.Secret, limits Limits, hooks []goredis.Hook) (goredis.UniversalClient, error) {
	options, err := goredis.ParseFailoverURL(address.Reveal())
	if err != nil || options.MasterName == "" || options.ReplicaOnly || options.RouteByLatency ||
		options.RouteRandomly {
		return nil, ErrURL // what a replica says may be of the past
	}
	options.MaxRetries, options.DialerRetries = retriesNever, 1
	options.DisableIdentity, options.ContextTimeoutEnabled = true, true
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = limits.Dial, limits.Call, limits.Call, limits.Pool
	options.PoolSize, options.ConnMaxIdleTime = limits.Connections, limits.Idle
	client := goredis.NewFailoverClient(options)
	client.AddHook(neverConnected{})
	addHooks(client, hooks)
	return client, nil
}

// neverConnected makes every failure to connect look like one. What a Sentinel did not answer is an error of reading,
// and to the caller of a script it would look as if the script might have run.
type neverConnected struct{}

// DialHook is goredis.Hook's.
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

// ProcessHook is goredis.Hook's.
func (neverConnected) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

// ProcessPipelineHook is goredis.Hook's.
func (neverConnected) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}
