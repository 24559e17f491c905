package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/google/uuid"
	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store"
)

// LoginCounters counts events within sliding windows, across all processes that share this Redis. Each key is
// a sorted set with up to limit members, and expires a window after its last event. The limit holds for any
// window, wherever it begins (contract, section 7); a refilling bucket such as RateLimits (redis_rate) allows
// up to twice as many in the first window.
type LoginCounters struct{ scripts *scripts }

var slidingWindow = newScript("slidingwindow")

var _ session.RateCounter = (*LoginCounters)(nil)

// NewLoginCounters returns LoginCounters stored in client.
func NewLoginCounters(client goredis.UniversalClient) *LoginCounters {
	return &LoginCounters{newScripts(client)}
}

// Count implements session.RateCounter.
func (l *LoginCounters) Count(
	ctx context.Context, key string, limit int, window time.Duration, add bool,
) (time.Duration, error) {
	answer, _, err := l.scripts.run(ctx, slidingWindow, "t:{"+key+"}", limit, window.Milliseconds(), add)
	if err != nil {
		return 0, fmt.Errorf("%w: redis: count: %w", store.ErrUnavailable, err)
	}
	wait, err := strconv.ParseInt(answer, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: redis: count: %w", store.ErrUnavailable, err)
	}
	return time.Duration(wait) * time.Millisecond, nil
}

// RateLimits counts events by key, across all processes that share this Redis. It stores one small string per
// key, which expires once the bucket has refilled.
type RateLimits struct{ limiter *redis_rate.Limiter }

var _ ratelimit.Rate = (*RateLimits)(nil)

// NewRateLimits returns RateLimits stored in client.
func NewRateLimits(client goredis.UniversalClient) *RateLimits {
	return &RateLimits{redis_rate.NewLimiter(client)}
}

// Take implements ratelimit.Rate. Its error wraps store.ErrUnavailable.
func (r *RateLimits) Take(ctx context.Context, key string, perMinute, n int) (time.Duration, error) {
	// The limiter adds the prefix "rate:".
	result, err := r.limiter.AllowAtMost(ctx, "{"+key+"}", redis_rate.PerMinute(perMinute), n)
	if err != nil {
		return 0, fmt.Errorf("%w: redis: rate: %w", store.ErrUnavailable, err)
	}
	missing := time.Duration(n - result.Allowed)
	wait := missing * (time.Minute / time.Duration(perMinute))
	return max(0, result.RetryAfter, wait), nil // RetryAfter is negative if no wait is needed
}

// ReplayCache records values that may be accepted only once, across all processes that share this Redis.
type ReplayCache struct{ scripts *scripts }

var once = newUrgentScript("once")

// NewReplayCache returns a ReplayCache stored in client.
func NewReplayCache(client goredis.UniversalClient) *ReplayCache {
	return &ReplayCache{newScripts(client)}
}

// First reports whether key is new, and records it for life. It retries a lost response with the same nonce,
// so that its own retry does not count as a replay. Its error wraps store.ErrUnavailable.
func (r *ReplayCache) First(ctx context.Context, key string, life time.Duration) (bool, error) {
	nonce := uuid.NewString()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for tries := 1; ; tries++ {
		answer, _, err := r.scripts.run(ctx, once, onceKey(key), nonce, max(life, time.Second).Milliseconds())
		if err == nil && answer == late {
			err = errLate
		}
		if err == nil {
			return answer == "first", nil
		}
		if tries == 2 {
			return false, fmt.Errorf("%w: redis: once: %w", store.ErrUnavailable, err)
		}
	}
}

// errLate reports that Redis received a call after its deadline and changed nothing.
var errLate = errors.New("redis received the call too late")

// onceKey returns the key of a recorded value.
func onceKey(key string) string { return "o:{" + key + "}" }
