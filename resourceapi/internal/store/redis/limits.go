// Package redis answers: how often has somebody done this in the last minute?
//
// Counts are kept in Redis, so that all processes of the service share them. A Redis that does not answer makes nobody
// wait and nobody fail: each process then counts for itself until it is back.
package redis

import (
	"context"
	_ "embed"
	"log/slog"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/redisurl"
)

const (
	callTimeout = 250 * time.Millisecond
	connections = 32
	restFor     = 2 * time.Second // after a failure, before Redis is asked again
	window      = time.Minute
)

//go:embed lua/count.lua
var countLua string

// Limits lets things happen a number of times a minute. It is safe for concurrent use.
type Limits struct {
	client   goredis.UniversalClient // nil: there is no Redis, this process counts for itself
	script   *goredis.Script
	local    *localLimits
	log      *slog.Logger
	now      func() time.Time
	askAgain atomic.Int64 // unix nanoseconds before which Redis is not asked
}

// Connect makes Limits over the Redis of the URL, or, where that is "", over this process alone. It does not
// dial. The error is redisurl.ErrURL.
func Connect(address credential.Secret, log *slog.Logger, now func() time.Time) (*Limits, error) {
	l := &Limits{local: newLocalLimits(now), log: log, now: now}
	if address == "" {
		return l, nil
	}
	var err error
	limits := redisurl.Limits{Dial: callTimeout, Call: callTimeout, Pool: callTimeout, Connections: connections}
	if l.client, err = redisurl.Open(address, limits); err != nil {
		return nil, err
	}
	l.script = goredis.NewScript(countLua)
	return l, nil
}

// Watch lets hook see every command, and hands the client to instrument. Where there is no Redis, there is nothing to
// see.
func (l *Limits) Watch(hook goredis.Hook, instrument func(goredis.UniversalClient) error) error {
	if l.client == nil {
		return nil
	}
	l.client.AddHook(hook)
	return instrument(l.client)
}

// PoolStats says how the connections are used; nil where there is no Redis.
func (l *Limits) PoolStats() *goredis.PoolStats {
	if l.client == nil {
		return nil
	}
	return l.client.PoolStats()
}

// AreShared says whether there is a Redis.
func (l *Limits) AreShared() bool { return l.client != nil }

// Answers says whether Redis answers. There is one.
func (l *Limits) Answers(ctx context.Context) error { return l.client.Ping(ctx).Err() }

// Close gives back the connections.
func (l *Limits) Close() error {
	if l.client == nil {
		return nil
	}
	return l.client.Close()
}

// Count counts one more event under the key, unless there were most of them in the last minute: then it returns how
// long to wait until there is room. 0 lets this one happen.
func (l *Limits) Count(ctx context.Context, key string, most int) time.Duration {
	if l.client == nil || l.now().UnixNano() < l.askAgain.Load() {
		return l.local.count(key, most)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*callTimeout)
	defer cancel()
	wait, err := l.shared(ctx, key, most)
	if err != nil {
		l.askAgain.Store(l.now().Add(restFor).UnixNano())
		l.log.WarnContext(
			ctx,
			"Redis does not answer: this process limits submissions by what it sees itself",
			"cause",
			err,
		)
		return l.local.count(key, most)
	}
	return wait
}

// shared counts in Redis. The limit is one of any minute, wherever it begins (contract, section 6). A bucket that
// refills, as redis_rate has it, lets up to twice as many through in the first minute, and a window that begins with an
// event does so around its end; so the events of the last minute are kept, at most as many as are allowed.
func (l *Limits) shared(ctx context.Context, key string, most int) (time.Duration, error) {
	milliseconds, err := l.script.Run(ctx, l.client, []string{"events:" + key}, most, window.Milliseconds()).Int64()
	return time.Duration(milliseconds) * time.Millisecond, err
}
