package redis

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store"
)

//go:embed lua/slidingwindow.lua
var slidingWindowLua string

// LoginCounters counts events within sliding windows, across all processes that share this Redis. Each key is
// a sorted set with up to limit members, and expires a window after its last event. The limit holds for any
// window, wherever it begins (contract, section 7); a refilling bucket such as RateLimits (redis_rate) allows
// up to twice as many in the first window.
type LoginCounters struct {
	scripts *scripts
	script  *goredis.Script
}

var _ session.RateCounter = (*LoginCounters)(nil)

// NewLoginCounters returns LoginCounters stored in client.
func NewLoginCounters(client goredis.UniversalClient) *LoginCounters {
	return &LoginCounters{scripts: newScripts(client), script: newScript(slidingWindowLua)}
}

// Count implements session.RateCounter.
func (l *LoginCounters) Count(
	ctx context.Context,
	key string,
	limit int,
	window time.Duration,
	add bool,
) (time.Duration, error) {
	args := []any{limit, window.Milliseconds(), add}
	answer, _, err := l.scripts.send(ctx, call{script: l.script, key: windowKey(key), args: args})
	if err != nil {
		return 0, fmt.Errorf("%w: redis: count: %w", store.ErrUnavailable, err)
	}
	wait, err := strconv.ParseInt(answer, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: redis: count: %w", store.ErrUnavailable, err)
	}
	return time.Duration(wait) * time.Millisecond, nil
}

// windowKey returns the Redis key of a counter.
func windowKey(key string) string { return "t:{" + key + "}" }
