package torture

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
)

// The Redis suites: Postgres knows what Redis forgets. While Redis refuses or does not respond, requests that need it
// get 503, never a client error.

// A redisStage is a product of two processes whose Redis is made to fail.
type redisStage struct {
	site
	trouble *trouble
}

func newRedisStage(t *testing.T) *redisStage {
	t.Helper()
	running := startedPair(t)
	return &redisStage{newSite(t, running), newTrouble(running)}
}

// A loss is a way for Redis to lose what it stored after middle ran in newBaseline, or everything.
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

func TestRedis_LostDataIsRepaired(t *testing.T) {
	times := harness.Rounds(1, 200)
	harness.Record(t, "%d times each: FLUSHALL, an older copy put back, the tail of the append-only file cut", times)
	s := newRedisStage(t)
	for _, l := range losses() {
		t.Run(l.name, func(t *testing.T) {
			for range times {
				d := newBaseline(t, s.site, func() { must(t, l.middle(s.trouble)) })
				must(t, l.lose(context.WithoutCancel(t.Context()), s.trouble))
				d.wantsKept(t)
			}
		})
	}
}

// TestRedis_HangLosesNothing freezes Redis, which keeps its connections open. Nothing may be consumed when it resumes,
// though requests may have reached it.
func TestRedis_HangLosesNothing(t *testing.T) {
	t.Parallel()
	times := harness.Rounds(1, 200)
	harness.Record(t, "frozen %d times for 2 s, each tenth time for 10 s", times)
	s := newPostgresStage(t) // whose requests do not wait long for a store
	redis := s.running.Redis
	for round := range times {
		silence := 2 * time.Second
		if round%10 == 9 {
			silence = 10 * time.Second
		}
		d := s.baseline(t)
		until := time.Now().Add(silence)
		must(t, redis.Pause())
		t.Cleanup(redis.Resume) // if the test ends early
		for first := true; first || time.Now().Before(until); first = false {
			d.wantsUnaffected(t)
			d.wantsUnavailable(t)
		}
		redis.Resume()
		time.Sleep(retryAfter) // the Retry-After of the responses
		d.wantsCode(t)
		d.wantsKept(t)
	}
}

// retryAfter is the Retry-After of a 503: by then the requests to the silent Redis are undone.
const retryAfter = 2 * time.Second

// markTail records the length of the append-only file.
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

// cutTail kills Redis and truncates its append-only file to the mark plus the beginning of a command.
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
		return fmt.Errorf("the append-only file has %d bytes after the mark: there is nothing to lose",
			info.Size()-x.mark)
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

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
