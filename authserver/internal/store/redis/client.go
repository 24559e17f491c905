package redis

import (
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/shared/config/redisurl"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// Time limits of a call. A script takes well under a millisecond: a Redis that needs longer is not answering.
const (
	dialTimeout = 250 * time.Millisecond
	callTimeout = 250 * time.Millisecond
	poolTimeout = 500 * time.Millisecond
	connections = 64
	idleLongest = 5 * time.Minute
)

// Connect makes a client for the grant path. wait raises the limits of its calls (see grant.Service.WaitForStores); 0
// changes nothing. The client does not retry, because a script that is sent twice
// may run twice: the grant service retries with a nonce. A cluster client must retry to follow moved slots,
// so a connectionGuard observes each try. Connect does not dial. The error is redisurl.ErrURL.
func Connect(url credential.Secret, wait time.Duration) (goredis.UniversalClient, error) {
	return ConnectFromSource(credential.Fixed(url), wait)
}

// ConnectFromSource is like Connect, for a URL whose user and password may change.
func ConnectFromSource(url credential.Source, wait time.Duration) (goredis.UniversalClient, error) {
	return connect(url, connections, wait)
}

// ConnectProbe makes a client with one connection for health checks, so that they do not wait for the
// connections of callers.
func ConnectProbe(url credential.Source) (goredis.UniversalClient, error) { return connect(url, 1, 0) }

func connect(url credential.Source, most int, wait time.Duration) (goredis.UniversalClient, error) {
	return redisurl.OpenFromSource(url, redisurl.Limits{
		Dial:        max(dialTimeout, wait),
		Call:        max(callTimeout, wait),
		Pool:        max(poolTimeout, wait),
		Idle:        idleLongest,
		Connections: most,
	}, new(connectionGuard))
}
