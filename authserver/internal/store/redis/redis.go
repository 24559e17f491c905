// Package redis stores the short-lived state of authserver that decides races.
//
// It stores the fast half of each grant (grant.RotationStore) as one hash under one key. Every decision is one Lua
// script on that key, so it also runs on Redis Cluster. Nothing depends on Redis keeping its data: the conditional
// updates in Postgres are authoritative. A response names the command that it belongs to (script.go): a response from a
// connection that is out of step decides nothing. KEYS.md lists every key, its fields and its time to live.
package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/google/uuid"
	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/config/redisurl"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// Time limits of a call. A script takes well under a millisecond: a Redis that needs longer is not answering.
const (
	dialTimeout = 250 * time.Millisecond
	callTimeout = 250 * time.Millisecond
	poolTimeout = 500 * time.Millisecond
	connections = 64
	idleLongest = 5 * time.Minute
)

// Connect makes a client for the grant path. wait raises the limits of its calls (see grant.Service.WaitForStores); 0
// changes nothing. The client does not retry, because a script that is sent twice may run twice: the grant service
// retries with a nonce. A cluster client must retry to follow moved slots, so a connectionGuard observes each try.
// Connect does not dial. The error is redisurl.ErrURL.
func Connect(url credential.Source, wait time.Duration) (goredis.UniversalClient, error) {
	return connect(url, connections, wait)
}

// ConnectProbe makes a client with one connection for health checks, so that they do not wait for the
// connections of callers.
func ConnectProbe(url credential.Source) (goredis.UniversalClient, error) { return connect(url, 1, 0) }

func connect(url credential.Source, most int, wait time.Duration) (goredis.UniversalClient, error) {
	return redisurl.OpenFromSource(url, redisurl.Limits{
		Dial:        max(dialTimeout, wait),
		Call:        max(callTimeout, wait),
		Pool:        max(poolTimeout, wait),
		Idle:        idleLongest,
		Connections: most,
	}, new(connectionGuard))
}

// A connectionGuard records that a command may have reached a node although no response came. Even if the last of
// several tries was certainly not sent, an earlier one may have been. Each client has its own connectionGuard.
type connectionGuard struct{ epoch atomic.Int64 }

// A command is what a connectionGuard knows about one command to Redis, including retries.
type command struct {
	doubt atomic.Bool // whether an earlier try may have been executed
	guard atomic.Pointer[connectionGuard]
}

type commandKey struct{}

// observe returns a context in which the command is observed.
func observe(ctx context.Context) (watched context.Context, q *command) {
	q = new(command)
	return context.WithValue(ctx, commandKey{}, q), q
}

// outOfStep invalidates all existing connections.
func (c *command) outOfStep() {
	if w := c.guard.Load(); w != nil {
		w.epoch.Add(1)
	}
}

func (c *connectionGuard) record(ctx context.Context, err error) {
	q, asked := ctx.Value(commandKey{}).(*command)
	if !asked {
		return
	}
	q.guard.Store(c)
	if err != nil && !neverSent(err) {
		q.doubt.Store(true)
	}
}

// DialHook implements goredis.Hook.
func (c *connectionGuard) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		born := c.epoch.Load()
		dialled, err := next(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &guardedConnection{Conn: dialled, epoch: born, current: &c.epoch}, nil
	}
}

// ProcessHook implements goredis.Hook.
func (c *connectionGuard) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, command goredis.Cmder) error {
		err := next(ctx, command)
		c.record(ctx, err)
		return err
	}
}

// ProcessPipelineHook implements goredis.Hook: a command for a moving slot is sent together with ASKING.
func (c *connectionGuard) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, commands []goredis.Cmder) error {
		err := next(ctx, commands)
		c.record(ctx, err)
		return err
	}
}

// errOutOfStep reports that a connection returned, or may return, the response to another command.
var errOutOfStep = errors.New("connection out of step: it returned the response to another command")

// A guardedConnection is valid until its client's epoch changes. After that nothing read from it is used, and
// go-redis discards it.
type guardedConnection struct {
	net.Conn
	epoch   int64
	current *atomic.Int64
}

func (g *guardedConnection) isExpired() bool { return g.current.Load() != g.epoch }

func (g *guardedConnection) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if g.isExpired() {
		return 0, errOutOfStep
	}
	return n, err
}

func (g *guardedConnection) Write(p []byte) (int, error) {
	if g.isExpired() {
		return 0, errOutOfStep
	}
	return g.Conn.Write(p)
}

// SyscallConn is called by go-redis before it takes a connection out of its pool: it closes a connection that
// returns an error.
func (g *guardedConnection) SyscallConn() (syscall.RawConn, error) {
	if g.isExpired() {
		return nil, errOutOfStep
	}
	if plain, ok := g.Conn.(syscall.Conn); ok {
		return plain.SyscallConn()
	}
	return opaque{}, nil
}

// opaque hides a TLS connection from go-redis: unread bytes there may be a message of TLS itself.
type opaque struct{}

func (opaque) Control(func(uintptr)) error    { return nil }
func (opaque) Read(func(uintptr) bool) error  { return nil }
func (opaque) Write(func(uintptr) bool) error { return nil }

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
	hashes, givenUp, direct := bytes.Join(next, nil), strings.Join(step.GivenUp, " "), step.Direct()
	token, terms := r.Token, r.Terms
	if r.IsCode() { // terms.Challenge is derived from the presented verifier
		return g.run(ctx, exchangeScript, step.GrantID, step.Nonce, token.Hash, terms.ClientID.String(),
			terms.RedirectURI, terms.Resource, terms.Challenge, hashes, givenUp, direct)
	}
	return g.run(ctx, rotateScript, step.GrantID, step.Nonce, token.Generation, token.Hash, terms.ClientID.String(),
		terms.Resource, hashes, givenUp, direct)
}

// Responds reports whether the server of a grant responded to the last call.
func (g *Grants) Responds(ctx context.Context, id uuid.UUID) bool {
	return g.scripts.server(ctx, grantKey(id)).health.answering()
}

// Undo restores the state before the decision with this nonce, if nothing has happened since.
func (g *Grants) Undo(ctx context.Context, id uuid.UUID, nonce string, how grant.Undo) (overtaken bool, err error) {
	result, err := g.run(ctx, undoScript, id, nonce, how.Refused, how.Former)
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

// NewLoginCounters returns LoginCounters stored in rdb.
func NewLoginCounters(rdb goredis.UniversalClient) *LoginCounters {
	return &LoginCounters{newScripts(rdb)}
}

// Count implements session.RateCounter.
func (l *LoginCounters) Count(
	ctx context.Context, key string, limit int, window time.Duration, add bool,
) (time.Duration, error) {
	answer, _, err := l.scripts.run(ctx, slidingWindow, "t:{"+key+"}", limit, window.Milliseconds(), add)
	var wait int64
	if err == nil {
		wait, err = strconv.ParseInt(answer, 10, 64)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: redis: count: %w", store.ErrUnavailable, err)
	}
	return time.Duration(wait) * time.Millisecond, nil
}

// RateLimits counts events by key, across all processes that share this Redis. It stores one small string per
// key, which expires once the bucket has refilled.
type RateLimits struct{ limiter *redis_rate.Limiter }

var _ ratelimit.Rate = (*RateLimits)(nil)

// NewRateLimits returns RateLimits stored in rdb.
func NewRateLimits(rdb goredis.UniversalClient) *RateLimits {
	return &RateLimits{redis_rate.NewLimiter(rdb)}
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

// NewReplayCache returns a ReplayCache stored in rdb.
func NewReplayCache(rdb goredis.UniversalClient) *ReplayCache { return &ReplayCache{newScripts(rdb)} }

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
