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

// ReplayCache remembers what may be accepted one time, for every process that shares this Redis.
type ReplayCache struct {
	scripts *scripts
	script  *goredis.Script
}

// NewReplayCache makes a Once.
func NewReplayCache(client goredis.UniversalClient) *ReplayCache {
	return &ReplayCache{newScripts(client), newScript(onceSource)}
}

// First says whether key was not met before, and remembers it for life. An answer that was lost is asked for again,
// with the same nonce: our own retry is no repetition. Its error wraps store.ErrUnavailable.
func (o *ReplayCache) First(ctx context.Context, key string, life time.Duration) (bool, error) {
	nonce := uuid.NewString()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	first, err := o.try(ctx, key, nonce, life)
	if err != nil {
		first, err = o.try(ctx, key, nonce, life)
	}
	if err != nil {
		return false, fmt.Errorf("%w: redis: once: %w", store.ErrUnavailable, err)
	}
	return first, nil
}

func (o *ReplayCache) try(ctx context.Context, key, nonce string, life time.Duration) (bool, error) {
	args := []any{nonce, max(life, time.Second).Milliseconds()}
	answer, _, err := o.scripts.ask(ctx, call{script: o.script, key: onceKey(key), args: args, urgent: true})
	if err == nil && answer == late {
		return false, errLate
	}
	return answer == "first", err
}

// errLate says that Redis got a call after its deadline, and changed nothing.
var errLate = errors.New("redis got the call too late")

// onceKey is the key of what was met once.
func onceKey(key string) string { return "o:{" + key + "}" }
