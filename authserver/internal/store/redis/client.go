package redis

import (
	"errors"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/shared/credential"
)

// Time limits of a call. A script takes well under a millisecond: a Redis that needs longer than this is not answering.
const (
	dialTimeout  = 250 * time.Millisecond
	callTimeout  = 250 * time.Millisecond
	poolTimeout  = 500 * time.Millisecond
	connections  = 64
	idleLongest  = 5 * time.Minute
	retriesNever = -1
)

var errURL = errors.New("the Redis URL cannot be read: it looks like redis://:password@host:6379/0, or, for a Redis Cluster, like redis://:password@host:6379?addr=second:6379&addr=third:6379")

// Connect makes a client for the grant path: its own retries are off, because a script that is sent twice has run twice; the
// Keeper retries with a nonce. A URL that names further addresses is a Redis Cluster's. It does not dial.
func Connect(url credential.Secret) (goredis.UniversalClient, error) {
	if namesCluster(url.Reveal()) {
		return connectCluster(url.Reveal())
	}
	options, err := goredis.ParseURL(url.Reveal())
	if err != nil {
		return nil, errURL
	}
	options.MaxRetries = retriesNever
	options.DisableIdentity = true
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = dialTimeout, callTimeout, callTimeout
	options.PoolTimeout, options.PoolSize, options.ConnMaxIdleTime = poolTimeout, connections, idleLongest
	options.ContextTimeoutEnabled = true
	options.DialerRetries = 1
	return goredis.NewClient(options), nil
}
