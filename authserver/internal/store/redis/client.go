package redis

import (
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/redisurl"
)

// Time limits of a call. A script takes well under a millisecond: a Redis that needs longer than this is not answering.
const (
	dialTimeout = 250 * time.Millisecond
	callTimeout = 250 * time.Millisecond
	poolTimeout = 500 * time.Millisecond
	connections = 64
	idleLongest = 5 * time.Minute
)

// Connect makes a client for the grant path. It tries nothing again by itself, because a script that is sent twice has
// run twice: the Keeper retries with a nonce. The client of a cluster must try again to follow the slots, so each try
// is witnessed. It does not dial. The error is redisurl.ErrURL.
func Connect(url credential.Secret) (goredis.UniversalClient, error) {
	return connect(url, connections)
}

// ConnectProbe makes a client with one connection that asks whether Redis answers, so that it does not wait for the
// connections of callers.
func ConnectProbe(url credential.Secret) (goredis.UniversalClient, error) { return connect(url, 1) }

func connect(url credential.Secret, most int) (goredis.UniversalClient, error) {
	return redisurl.Open(url, redisurl.Limits{
		Dial:        dialTimeout,
		Call:        callTimeout,
		Pool:        poolTimeout,
		Idle:        idleLongest,
		Connections: most,
	}, new(connectionGuard))
}
