package redis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/authserver/internal/store"
)

//go:embed lua/once.lua
var onceSource string

// ReplayCache records values that may be accepted only once, across all processes that share this Redis.
type ReplayCache struct {
	scripts *scripts
	script  *goredis.Script
}

// NewReplayCache returns a ReplayCache stored in client.
func NewReplayCache(client goredis.UniversalClient) *ReplayCache {
	return &ReplayCache{newScripts(client), newScript(onceSource)}
}

// First reports whether key is new, and records it for life. It retries a lost response with the same nonce,
// so that its own retry does not count as a replay. Its error wraps store.ErrUnavailable.
func (r *ReplayCache) First(ctx context.Context, key string, life time.Duration) (bool, error) {
	nonce := uuid.NewString()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	first, err := r.try(ctx, key, nonce, life)
	if err != nil {
		first, err = r.try(ctx, key, nonce, life)
	}
	if err != nil {
		return false, fmt.Errorf("%w: redis: once: %w", store.ErrUnavailable, err)
	}
	return first, nil
}

func (r *ReplayCache) try(ctx context.Context, key, nonce string, life time.Duration) (bool, error) {
	args := []any{nonce, max(life, time.Second).Milliseconds()}
	answer, _, err := r.scripts.send(ctx, call{script: r.script, key: onceKey(key), args: args, urgent: true})
	if err == nil && answer == late {
		return false, errLate
	}
	return answer == "first", err
}

// errLate reports that Redis received a call after its deadline and changed nothing.
var errLate = errors.New("redis received the call too late")

// onceKey returns the key of a recorded value.
func onceKey(key string) string { return "o:{" + key + "}" }
