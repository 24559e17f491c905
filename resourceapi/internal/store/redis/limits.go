// Package redis limits how often a client may do something in a minute.
//
// Counts are stored in Redis, so that all processes of the service share them. If Redis does not respond, requests
// neither wait nor fail: each process counts by itself until Redis is back.
package redis

import (
	"context"
	_ "embed"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/shared/config/redisurl"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

const (
	callTimeout = 250 * time.Millisecond
	connections = 32
	restFor     = 2 * time.Second // pause after a failure, before Redis is called again
	window      = time.Minute
)

//go:embed lua/count.lua
var countLua string

// Limits limits the number of events per minute. It is safe for concurrent use.
type Limits struct {
	Client goredis.UniversalClient // nil without Redis: this process counts by itself

	script   *goredis.Script
	local    *localLimits
	within   time.Duration // limit of one call
	log      *slog.Logger
	now      func() time.Time
	askAgain atomic.Int64 // unix nanoseconds before which Redis is not called
}

// Connect returns Limits that use the Redis of the URL or, if it is empty, this process alone. It does not dial. wait
// raises the time that callers wait for a Redis that does not respond; 0 changes nothing. The error is redisurl.ErrURL.
func Connect(address credential.Source, wait time.Duration, log *slog.Logger, now func() time.Time) (*Limits, error) {
	l := &Limits{
		local:  newLocalLimits(now),
		within: max(callTimeout, wait),
		log:    log,
		now:    now,
	}
	if address() == "" {
		return l, nil
	}
	l.script = goredis.NewScript(countLua)
	limits := redisurl.Limits{
		Dial:        l.within,
		Call:        l.within,
		Pool:        l.within,
		Connections: connections,
	}
	var err error
	l.Client, err = redisurl.OpenFromSource(address, limits)
	return l, err
}

// Close closes the connections.
func (l *Limits) Close() error {
	if l.Client == nil {
		return nil
	}
	return l.Client.Close()
}

// Count counts one more event under the key and returns 0. If there were already most events in the last minute, it
// does not count the event and returns how long to wait until there is room.
func (l *Limits) Count(ctx context.Context, key string, most int) time.Duration {
	if l.Client == nil || l.now().UnixNano() < l.askAgain.Load() {
		return l.local.count(key, most)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*l.within)
	defer cancel()
	wait, err := l.shared(ctx, key, most)
	if err != nil {
		l.askAgain.Store(l.now().Add(restFor).UnixNano())
		l.log.WarnContext(ctx, "Redis unavailable; submissions limited by this process only", "cause", err)
		return l.local.count(key, most)
	}
	return wait
}

// shared counts in Redis. The limit holds for every one-minute interval (contract, section 6). A token bucket, as in
// redis_rate, admits up to twice as many events in the first minute, and a fixed window does so around its end. So
// the events of the last minute are stored, at most as many as are allowed.
func (l *Limits) shared(ctx context.Context, key string, most int) (time.Duration, error) {
	milliseconds, err := l.script.Run(ctx, l.Client, []string{"events:" + key}, most, window.Milliseconds()).Int64()
	return time.Duration(milliseconds) * time.Millisecond, err
}

// mostKeys bounds the memory that anonymous clients can make this process use. Beyond it, the key that was counted
// least recently is forgotten.
const mostKeys = 20_000

// localLimits counts in this process.
type localLimits struct {
	now func() time.Time

	mu     sync.Mutex
	events *simplelru.LRU[string, []time.Time] // of the last minute, oldest first
}

func newLocalLimits(now func() time.Time) *localLimits {
	events, _ := simplelru.NewLRU[string, []time.Time](mostKeys, nil) // fails only for a size below 1
	return &localLimits{now: now, events: events}
}

func (l *localLimits) count(key string, most int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	events, _ := l.events.Get(key)
	for len(events) > 0 && now.Sub(events[0]) >= window {
		events = events[1:]
	}
	if len(events) >= most {
		return events[0].Add(window).Sub(now)
	}
	l.events.Add(key, append(events, now))
	return 0
}
