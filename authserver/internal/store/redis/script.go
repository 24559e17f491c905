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

// wrapping gives a script its prelude, refuses a call whose deadline has passed before the script looks at anything
// (grants.md, G10), and says after the answer what Redis' clock shows and which call it answers.
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

// late is what a script answers that came after its deadline: it has changed nothing.
const late = "late"

// errSilent says that nothing was sent, because Redis has not answered an earlier call.
var errSilent = errors.New("redis does not answer")

// errSlow says that Redis was given up before its clock was known.
var errSlow = errors.New("redis does not tell the time soon enough")

// scripts runs scripts on Redis and remembers which servers answer, and what their clocks show.
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
	// urgent calls change nothing once their context's deadline has passed, however late Redis gets them.
	urgent bool
}

// ask runs a script. reached says whether Redis may have got the call. While the server does not answer anything,
// nothing is sent.
func (s *scripts) ask(ctx context.Context, c call) (answer string, reached bool, err error) {
	one := s.servers.of(ctx, s.rdb, c.key)
	if !one.pulse.beats(ctx, callTimeout) {
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
		one.pulse.stopped(func() bool { return s.probe(one, c.key) })
	}
	return answer, reached, err
}

// probe reports whether the server that keeps key answers, or this client is closed.
func (s *scripts) probe(one *server, key string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	_, _, err := s.run(ctx, one, call{script: s.clock, key: key}, 0)
	return err == nil || errors.Is(err, goredis.ErrClosed)
}

// deadline is ctx's by the server's own clock. A clock that is not known yet is asked for.
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

// run runs a script by its hash, and by its source where Redis does not know it yet. Each call has a mark of its own,
// because the same script is run for the same grant many times. An answer without the mark is the answer to another
// call: then every connection of this client is closed, because any of them may be out of step, and the answer counts
// as lost.
func (s *scripts) run(
	ctx context.Context,
	one *server,
	c call,
	deadline int64,
) (answer string, reached bool, err error) {
	mark := strconv.FormatUint(rand.Uint64(), 36)
	ctx, question := witnessed(ctx)
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

// timedOut says whether an answer did not come in time.
func timedOut(err error) bool {
	var network net.Error
	return errors.Is(err, context.DeadlineExceeded) || (errors.As(err, &network) && network.Timeout())
}
