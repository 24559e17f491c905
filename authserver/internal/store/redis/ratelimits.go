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

// RateLimits count events by key, for every process that shares this Redis: one small string per key, gone once the key
// is at rest.
type RateLimits struct{ limiter *redis_rate.Limiter }

var _ ratelimit.Rate = (*RateLimits)(nil)

// NewRateLimits makes Rates.
func NewRateLimits(client goredis.UniversalClient) *RateLimits {
	return &RateLimits{redis_rate.NewLimiter(client)}
}

// Take is failures.Rate's. Its error wraps store.ErrUnavailable.
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
	), nil // RetryAfter is negative where there is none
}

// rateKey is the one key of a rate, to which the limiter adds rate: in front.
func rateKey(key string) string { return "{" + key + "}" }
