package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/go-redis/redis_rate/v10"
	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
	"github.com/almonerhq/almoner/authserver/internal/store"
)

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
	result, err := r.limiter.AllowAtMost(ctx, rateKey(key), redis_rate.PerMinute(perMinute), n)
	if err != nil {
		return 0, fmt.Errorf("%w: redis: rate: %w", store.ErrUnavailable, err)
	}
	missing := time.Duration(n - result.Allowed)
	return max(
		0,
		result.RetryAfter,
		missing*(time.Minute/time.Duration(perMinute)),
	), nil // RetryAfter is negative if no wait is needed
}

// rateKey returns the key of a rate. The limiter adds the prefix "rate:".
func rateKey(key string) string { return "{" + key + "}" }
