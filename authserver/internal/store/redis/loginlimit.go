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

//go:embed lua/tally.lua
var tallyLua string

// LoginCounters count events within sliding windows, for every process that shares this Redis. Each key is a sorted set
// of at most limit members, and gone a window after its last event. The limit is one of any window, wherever it begins
// (contract, section 7): a bucket that refills, as Rates has it (redis_rate), lets up to twice as many through in the
// first one.
type LoginCounters struct {
	scripts *scripts
	script  *goredis.Script
}

var _ session.Tally = (*LoginCounters)(nil)

// NewLoginCounters makes Tallies.
func NewLoginCounters(client goredis.UniversalClient) *LoginCounters {
	return &LoginCounters{scripts: newScripts(client), script: newScript(tallyLua)}
}

// Count is session.Tally's.
func (t *LoginCounters) Count(
	ctx context.Context,
	key string,
	limit int,
	window time.Duration,
	add bool,
) (time.Duration, error) {
	args := []any{limit, window.Milliseconds(), add}
	answer, _, err := t.scripts.ask(ctx, call{script: t.script, key: tallyKey(key), args: args})
	if err != nil {
		return 0, fmt.Errorf("%w: redis: count: %w", store.ErrUnavailable, err)
	}
	wait, err := strconv.ParseInt(answer, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: redis: count: %w", store.ErrUnavailable, err)
	}
	return time.Duration(wait) * time.Millisecond, nil
}

// tallyKey is the one key of a tally.
func tallyKey(key string) string { return "t:{" + key + "}" }
