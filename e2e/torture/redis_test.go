package torture

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
)

// The suites of Redis: what it forgets, Postgres knows; while it refuses or is silent, whoever needs it is told 503,
// and nobody that they are at fault.

// A redisStage is a product of two processes whose Redis is made to fail.
type redisStage struct {
	*harness.Product
	trouble   *trouble
	office    harness.Office
	connector harness.Connector
	app       harness.ConfidentialApp
}

// redisStack is shared by the suites that make its Redis fail, one after the other.
var redisStack = sync.OnceValues(func() (*stack.Stack, error) { return harness.Lasting(pairOfAuthservers()) })

func newRedisStage(t *testing.T) *redisStage {
	t.Helper()
	running, err := redisStack()
	if err != nil {
		t.Fatalf("start the stack: %v", err)
	}
	p := harness.Enter(t, running, &met)
	office := p.Office(t)
	return &redisStage{
		p,
		newTrouble(running),
		office,
		office.Connector(t, harness.ReadProgrammes),
		office.Confidential(t, "", harness.ReadProgrammes),
	}
}

func (s *redisStage) deposit(t *testing.T, middle func()) *deposit {
	t.Helper()
	return newDeposit(t, s.Product, s.office, s.connector, s.app, middle)
}

// A loss is a way for Redis to lose what it knew after the middle of a deposit, or all of it.
type loss struct {
	name   string
	middle func(x *trouble) error
	lose   func(ctx context.Context, x *trouble) error
}

func losses() []loss {
	nothing := func(*trouble) error { return nil }
	return []loss{
		{"FLUSHALL", nothing, func(_ context.Context, x *trouble) error { return flushAll(x.running.RedisURL) }},
		{
			"an older copy is put back",
			(*trouble).keepCopy,
			func(ctx context.Context, x *trouble) error { return x.putBack(ctx) },
		},
		{
			"the tail of the append-only file is cut",
			(*trouble).markTail,
			func(ctx context.Context, x *trouble) error { return x.cutTail(ctx) },
		},
	}
}

func TestRedisLosesItsMemory(t *testing.T) {
	times := harness.Rounds(1, 200)
	harness.Note(t, "%d times each: FLUSHALL, an older copy put back, the tail of the append-only file cut", times)
	s := newRedisStage(t)
	for _, l := range losses() {
		t.Run(l.name, func(t *testing.T) {
			for range times {
				d := s.deposit(t, func() { must(t, l.middle(s.trouble)) })
				must(t, l.lose(context.WithoutCancel(t.Context()), s.trouble))
				d.wantsKept(t)
			}
		})
	}
}

// A hanging Redis keeps its connections open. Nothing was consumed when it goes on, but what it was asked may have
// reached it.
func TestRedisHangs(t *testing.T) {
	besideOthers(t)
	times := harness.Rounds(1, 200)
	harness.Note(t, "frozen %d times for 2 s, each tenth time for 10 s", times)
	s := newRedisStage(t)
	redis := s.trouble.running.Redis
	for round := range times {
		silence := 2 * time.Second
		if round%10 == 9 {
			silence = 10 * time.Second
		}
		d := s.deposit(t, func() {})
		until := time.Now().Add(silence)
		must(t, redis.Pause())
		t.Cleanup(redis.Resume) // where the test ends early
		for first := true; first || time.Now().Before(until); first = false {
			d.wantsUnnoticed(t)
			d.wantsUnavailable(t)
		}
		redis.Resume()
		time.Sleep(asTold) // as the callers were told to
		d.wantsCode(t)
		d.wantsKept(t)
	}
}

// asTold is the Retry-After of a 503: what was asked of a silent Redis has been taken back by then.
const asTold = 2 * time.Second

// markTail notes how long the append-only file is.
func (x *trouble) markTail() error {
	file, err := x.appendOnlyFile()
	if err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	x.mark = info.Size()
	return nil
}

// cutTail lets Redis die, and cuts what it has written since the mark but for the beginning of a command.
func (x *trouble) cutTail(ctx context.Context) error {
	file, err := x.appendOnlyFile()
	if err != nil {
		return err
	}
	x.running.Redis.Kill()
	const beginning = 20
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if info.Size() < x.mark+10*beginning {
		return fmt.Errorf(
			"the append-only file has %d bytes after the mark: there is nothing to lose",
			info.Size()-x.mark,
		)
	}
	if err := os.Truncate(file, x.mark+beginning); err != nil {
		return err
	}
	return x.running.Redis.Restart(ctx)
}

func (x *trouble) appendOnlyFile() (string, error) {
	files, err := filepath.Glob(filepath.Join(x.stored(), "*.incr.aof"))
	if err != nil || len(files) != 1 {
		return "", fmt.Errorf("%d append-only files in %s", len(files), x.stored())
	}
	return files[0], nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
