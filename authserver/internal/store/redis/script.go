package redis

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var sources embed.FS

// wrapping adds the prelude to a script, refuses a call whose deadline has passed before the script reads
// anything (package grant, G10), and appends Redis' time and the mark of the call to the result.
const wrapping = `%s
local function answer()
%s
end
local deadline, word = tonumber(ARGV[#ARGV - 1]), 'late'
if deadline == 0 or now < deadline then word = answer() end
return word .. ' ' .. string.format('%%d', now) .. ' ' .. ARGV[#ARGV]
`

// A script is a Lua script with its prelude. A call of an urgent one changes nothing once its context's deadline has
// passed, however late Redis receives it.
type script struct {
	*goredis.Script
	urgent bool
}

// newScript returns the script of a file in lua.
func newScript(name string) script {
	return script{Script: goredis.NewScript(fmt.Sprintf(wrapping, source("prelude"), source(name)))}
}

func newUrgentScript(name string) script { return script{newScript(name).Script, true} }

func source(name string) string {
	content, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // only for a name without a file
	}
	return string(content)
}

// late is the result of a script that ran after its deadline and changed nothing.
const late = "late"

// errSilent reports that nothing was sent, because Redis has not answered an earlier call.
var errSilent = errors.New("redis unavailable")

// errSlow reports that the call was abandoned before the time of Redis' clock was known.
var errSlow = errors.New("redis clock response too slow")

// scripts runs scripts on Redis. It records which servers answer and the times of their clocks.
type scripts struct {
	rdb goredis.UniversalClient

	mu      sync.Mutex
	servers map[string]*server // by address
}

var clockScript = newScript("clock")

func newScripts(rdb goredis.UniversalClient) *scripts {
	return &scripts{rdb: rdb, servers: map[string]*server{}}
}

// run runs a script on one key. reached reports whether Redis may have received the call. While the server does not
// answer, nothing is sent.
func (s *scripts) run(ctx context.Context, c script, key string, args ...any) (answer string, reached bool, err error) {
	one := s.server(ctx, key)
	if !one.health.available(ctx, callTimeout) {
		return "", false, errSilent
	}
	var deadline int64
	if c.urgent {
		if deadline, err = s.deadline(ctx, one, key); err != nil {
			return "", false, err
		}
	}
	answer, reached, err = s.send(ctx, one, c, key, deadline, args...)
	if err != nil && reached && timedOut(err) {
		one.health.stopped(func() bool { return s.probe(one, key) })
	}
	return answer, reached, err
}

// probe reports whether the server of key answers, or this client is closed.
func (s *scripts) probe(one *server, key string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	_, _, err := s.send(ctx, one, clockScript, key, 0)
	return err == nil || errors.Is(err, goredis.ErrClosed)
}

// deadline returns ctx's deadline by the server's clock. If the clock is not known yet, it queries it.
func (s *scripts) deadline(ctx context.Context, one *server, key string) (int64, error) {
	end, bounded := ctx.Deadline()
	if !bounded {
		return 0, nil
	}
	if deadline := one.clock.deadline(end); deadline != 0 {
		return deadline, nil
	}
	if _, _, err := s.send(ctx, one, clockScript, key, 0); err != nil {
		return 0, err
	}
	if deadline := one.clock.deadline(end); deadline != 0 {
		return deadline, nil
	}
	return 0, errSlow
}

// send sends a script by its hash, or by its source if Redis does not know the hash. Each call has a unique mark,
// because the same script runs for the same grant many times. A response without the mark belongs to another call: send
// then closes every connection of this client, because any of them may be out of step, and treats the response as lost.
func (s *scripts) send(
	ctx context.Context, one *server, c script, key string, deadline int64, args ...any,
) (answer string, reached bool, err error) {
	mark := strconv.FormatUint(rand.Uint64(), 36)
	ctx, question := observe(ctx)
	sent := time.Now()
	value, err := c.Run(ctx, s.rdb, []string{key}, append(args, deadline, mark)...).Result()
	if err != nil && !errors.Is(err, goredis.Nil) { // no script of ours answers nil
		return "", !neverSent(err) || question.doubt.Load(), err
	}
	text, _ := value.(string)
	rest, ours := strings.CutSuffix(text, " "+mark)
	at := strings.LastIndexByte(rest, ' ')
	if !ours || at < 0 {
		question.outOfStep()
		return "", true, errOutOfStep
	}
	if now, err := strconv.ParseInt(rest[at+1:], 10, 64); err == nil {
		one.clock.observe(clockSample{server: now, sent: sent, received: time.Now()})
	}
	return rest[:at], true, nil
}

// timedOut reports whether no response came in time.
func timedOut(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || (errors.As(err, &network) && network.Timeout())
}

// neverSent reports whether Redis certainly did not receive the command, or refused to run it.
func neverSent(err error) bool {
	var network *net.OpError
	var refused goredis.Error
	return errors.Is(err, goredis.ErrPoolTimeout) || errors.Is(err, goredis.ErrPoolExhausted) ||
		errors.As(err, &refused) ||
		(errors.As(err, &network) && network.Op == "dial")
}

// A server is what is known of one Redis server: the time of its clock and whether it answers.
type server struct {
	clock  clock
	health healthGate
}

// server returns the server of key: in a cluster, the master of its slot.
func (s *scripts) server(ctx context.Context, key string) *server {
	address := ""
	if cluster, is := s.rdb.(*goredis.ClusterClient); is {
		if master, err := cluster.MasterForKey(ctx, key); err == nil {
			address = master.Options().Addr
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one, known := s.servers[address]
	if !known {
		one = new(server)
		s.servers[address] = one
	}
	return one
}

// A clock estimates the time of a Redis server's clock from the times in its responses. The estimate is a lower bound:
// a deadline computed from it is never later, by the server's clock, than the intended moment (package grant, G10).
type clock struct {
	mu     sync.Mutex
	sample clockSample
}

// A clockSample is one response that carried the server's time.
type clockSample struct {
	server         int64     // milliseconds; the server read its clock between sent and received
	sent, received time.Time // with the monotonic clock
}

// driftPerSecond bounds how much the rates of two clocks differ (NTP adjusts by up to 500 parts per million).
const driftPerSecond = 500 * time.Microsecond

func drift(d time.Duration) time.Duration {
	return time.Duration(d.Seconds() * float64(driftPerSecond))
}

// lower returns the lowest time that the server's clock can show at the moment at.
func (c clockSample) lower(at time.Time) int64 {
	since := at.Sub(c.received)
	return c.server + (since - drift(since)).Milliseconds()
}

// observe records a response. The response replaces the sample if the server's clock was set back, or if it bounds the
// clock no less tightly.
func (c *clock) observe(answer clockSample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sample := c.sample
	setBack := answer.server < sample.lower(answer.sent)-1
	if sample.received.IsZero() || setBack || answer.server >= sample.lower(answer.received) {
		c.sample = answer
	}
}

// deadline returns a lower bound of the server's clock at the moment at, or 0 if there is no sample.
func (c *clock) deadline(at time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sample.received.IsZero() {
		return 0
	}
	return c.sample.lower(at)
}

// A healthGate records that a server has stopped answering, so that requests are refused early and no calls
// pile up. The zero value is for a server that answers. It is safe for concurrent use.
type healthGate struct {
	mu      sync.Mutex
	answers chan struct{} // closed once the server answers again; nil while it does
}

const probePause = 20 * time.Millisecond

// answering reports whether the server answers, as far as is known.
func (h *healthGate) answering() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.answers == nil
}

// available reports whether the server answers. It waits up to within for a server that does not.
func (h *healthGate) available(ctx context.Context, within time.Duration) bool {
	h.mu.Lock()
	answers := h.answers
	h.mu.Unlock()
	if answers == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	select {
	case <-answers:
		return true
	case <-ctx.Done():
		return false
	}
}

// stopped records that the server does not answer. It calls probe in the background until probe returns true.
func (h *healthGate) stopped(probe func() bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.answers != nil {
		return
	}
	answers := make(chan struct{})
	h.answers = answers
	go func() {
		for !probe() {
			time.Sleep(probePause)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.answers = nil
		close(answers)
	}()
}
