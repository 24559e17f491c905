package redis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

//go:embed lua/prelude.lua
var prelude string

// wrapping adds the prelude to a script, refuses a call whose deadline has passed before the script reads
// anything (grants.md, G10), and appends Redis' time and the mark of the call to the result.
const wrapping = `%s
local function answer()
%s
end
local deadline, word = tonumber(ARGV[#ARGV - 1]), 'late'
if deadline == 0 or now < deadline then word = answer() end
return word .. ' ' .. string.format('%%d', now) .. ' ' .. ARGV[#ARGV]
`

func newScript(source string) *goredis.Script {
	return goredis.NewScript(fmt.Sprintf(wrapping, prelude, source))
}

// late is the result of a script that ran after its deadline and changed nothing.
const late = "late"

// errSilent reports that nothing was sent, because Redis has not answered an earlier call.
var errSilent = errors.New("redis unavailable")

// errSlow reports that the call was abandoned before the time of Redis' clock was known.
var errSlow = errors.New("redis clock response too slow")

// scripts runs scripts on Redis. It records which servers answer and the times of their clocks.
type scripts struct {
	rdb     goredis.UniversalClient
	servers servers
	clock   *goredis.Script
}

//go:embed lua/clock.lua
var clockSource string

func newScripts(rdb goredis.UniversalClient) *scripts {
	return &scripts{rdb: rdb, clock: newScript(clockSource)}
}

// A call is one run of a script.
type call struct {
	script *goredis.Script
	key    string
	args   []any
	// urgent makes the call change nothing once its context's deadline has passed, however late Redis
	// receives it.
	urgent bool
}

// send runs a script. reached reports whether Redis may have received the call. While the server does not
// answer, nothing is sent.
func (s *scripts) send(ctx context.Context, c call) (answer string, reached bool, err error) {
	one := s.servers.of(ctx, s.rdb, c.key)
	if !one.health.available(ctx, callTimeout) {
		return "", false, errSilent
	}
	var deadline int64
	if c.urgent {
		if deadline, err = s.deadline(ctx, one, c.key); err != nil {
			return "", false, err
		}
	}
	answer, reached, err = s.run(ctx, one, c, deadline)
	if err != nil && reached && timedOut(err) {
		one.health.stopped(func() bool { return s.probe(one, c.key) })
	}
	return answer, reached, err
}

// probe reports whether the server of key answers, or this client is closed.
func (s *scripts) probe(one *server, key string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	_, _, err := s.run(ctx, one, call{script: s.clock, key: key}, 0)
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
	if _, _, err := s.run(ctx, one, call{script: s.clock, key: key}, 0); err != nil {
		return 0, err
	}
	if deadline := one.clock.deadline(end); deadline != 0 {
		return deadline, nil
	}
	return 0, errSlow
}

// run runs a script by its hash, or by its source if Redis does not know the hash. Each call has a unique
// mark, because the same script runs for the same grant many times. A response without the mark belongs to
// another call: run then closes every connection of this client, because any of them may be out of step, and
// treats the response as lost.
func (s *scripts) run(
	ctx context.Context,
	one *server,
	c call,
	deadline int64,
) (answer string, reached bool, err error) {
	mark := strconv.FormatUint(rand.Uint64(), 36)
	ctx, question := observe(ctx)
	sent := time.Now()
	value, err := c.script.Run(ctx, s.rdb, []string{
		c.key,
	}, append(c.args[:len(c.args):len(c.args)], deadline, mark)...).
		Result()
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
