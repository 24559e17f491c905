package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/google/uuid"
	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store"
)

// The scripts on grants.
var (
	issueScript      = newUrgentScript("issue")
	withdrawScript   = newScript("withdraw")
	exchangeScript   = newUrgentScript("exchange")
	rotateScript     = newUrgentScript("rotate")
	undoScript       = newScript("undo")
	supersededScript = newUrgentScript("superseded")
	revokeScript     = newScript("revoke")
	repairScript     = newUrgentScript("repair")
)

// Grants implements grant.RotationStore.
type Grants struct{ scripts *scripts }

var _ grant.RotationStore = (*Grants)(nil)

// NewGrants returns the Grants stored in rdb.
func NewGrants(rdb goredis.UniversalClient) *Grants { return &Grants{newScripts(rdb)} }

// run runs a script on a grant's key. Every error wraps store.ErrUnavailable.
func (g *Grants) run(ctx context.Context, c script, id uuid.UUID, args ...any) (grant.ScriptResult, error) {
	result, reached, err := g.scripts.run(ctx, c, grantKey(id), args...)
	if err != nil && !reached {
		return "", fmt.Errorf("%w: %w: redis: %w", grant.ErrNotCommitted, store.ErrUnavailable, err)
	}
	if err != nil {
		return "", fmt.Errorf("%w: redis: %w", store.ErrUnavailable, err)
	}
	return grant.ScriptResult(result), nil
}

// grantKey returns the key of a grant. The braces select the hash slot.
func grantKey(id uuid.UUID) string { return "g:{" + id.String() + "}" }

// Issue makes the code of an approval redeemable, unless a later approval has replaced it.
func (g *Grants) Issue(
	ctx context.Context, id uuid.UUID, approval int, codeHash []byte, terms grant.CodeTerms, ends time.Time,
) (grant.ScriptResult, error) {
	return g.run(ctx, issueScript, id, codeHash, client.CodeLife.Milliseconds(), terms.ClientID.String(),
		terms.RedirectURI, terms.Resource, terms.Challenge, ends.UnixMilli(), approval)
}

// Withdraw undoes the Issue of an approval.
func (g *Grants) Withdraw(ctx context.Context, id uuid.UUID, approval int) (grant.ScriptResult, error) {
	return g.run(ctx, withdrawScript, id, approval)
}

// Decide redeems a code or replaces a refresh token, or repeats that.
func (g *Grants) Decide(
	ctx context.Context, step grant.Step, r grant.Request, next [][]byte,
) (grant.ScriptResult, error) {
	hashes, givenUp, direct := bytes.Join(next, nil), strings.Join(step.GivenUp, " "), flag(step.Direct())
	token, terms := r.Token, r.Terms
	if r.IsCode() { // terms.Challenge is derived from the presented verifier
		return g.run(ctx, exchangeScript, step.GrantID, step.Nonce, token.Hash, terms.ClientID.String(),
			terms.RedirectURI, terms.Resource, terms.Challenge, hashes, givenUp, direct)
	}
	return g.run(ctx, rotateScript, step.GrantID, step.Nonce, token.Generation, token.Hash, terms.ClientID.String(),
		terms.Resource, hashes, givenUp, direct)
}

// flag returns how the scripts read a flag.
func flag(set bool) string {
	if set {
		return "1"
	}
	return ""
}

// Responds reports whether the server of a grant responded to the last call.
func (g *Grants) Responds(ctx context.Context, id uuid.UUID) bool {
	return g.scripts.servers.of(ctx, g.scripts.rdb, grantKey(id)).health.answering()
}

// Undo restores the state before the decision with this nonce, if nothing has happened since.
func (g *Grants) Undo(ctx context.Context, id uuid.UUID, nonce string, how grant.Undo) (overtaken bool, err error) {
	result, err := g.run(ctx, undoScript, id, nonce, flag(how.Refused), how.Former)
	return how.Refused && result == grant.NotHeld, err
}

// Superseded returns why Postgres holds a later step than the presented credential.
func (g *Grants) Superseded(ctx context.Context, step grant.Step, known grant.Grant) (grant.ScriptResult, error) {
	return g.run(ctx, supersededScript, known.ID, step.Nonce, step.Hash, known.Generation,
		strings.Join(known.TakenBy, " "), strings.Join(step.GivenUp, " "))
}

// Revoke marks the grant as revoked, even if Redis does not know it.
func (g *Grants) Revoke(ctx context.Context, id uuid.UUID, reason grant.Reason, ends time.Time) error {
	_, err := g.run(ctx, revokeScript, id, string(reason), ends.UnixMilli())
	return err
}

// RevokeAll is Revoke for each of the grants with its reason, in one round trip. If the call for a
// grant fails, it calls Revoke for that grant, and it returns the first error of Revoke.
func (g *Grants) RevokeAll(ctx context.Context, ended []grant.Grant) error {
	calls, results := g.scripts.rdb.Pipeline(), make([]*goredis.Cmd, len(ended))
	for i, one := range ended {
		results[i] = revokeScript.EvalSha(ctx, calls, []string{grantKey(one.ID)},
			string(one.Reason), one.Ends.UnixMilli(), 0, one.ID.String()) // without a deadline, marked by its id
	}
	_, _ = calls.Exec(ctx) // each result has its error
	for i, one := range ended {
		if text, err := results[i].Text(); err == nil && strings.HasSuffix(text, " "+one.ID.String()) {
			continue
		}
		if err := g.Revoke(ctx, one.ID, one.Reason, one.Ends); err != nil {
			return err
		}
	}
	return nil
}

// Repair updates an active grant to the state in Postgres.
func (g *Grants) Repair(ctx context.Context, known grant.Grant) error {
	result, err := g.run(ctx, repairScript, known.ID, known.Generation, known.RefreshHash, known.ClientID.String(),
		known.Resource, known.Ends.UnixMilli())
	if err == nil && result == grant.Late {
		return fmt.Errorf("%w: %w: redis: repair came too late", grant.ErrNotCommitted, store.ErrUnavailable)
	}
	return err
}

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
