package torture

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// The Redis suites: Postgres knows what Redis forgets. While Redis refuses or does not respond, requests that need it
// get 503, never a client error.

// A redisStage is a product of two processes whose Redis is made to fail.
type redisStage struct {
	site
	*trouble
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
	lose   func(x *trouble, ctx context.Context) error
}

func losses() []loss {
	nothing := func(*trouble) error { return nil }
	return []loss{
		{"FLUSHALL", nothing, func(x *trouble, _ context.Context) error { return flushAll(x.running.RedisURL) }},
		{"an older copy is put back", (*trouble).keepCopy, (*trouble).putBack},
		{"the tail of the append-only file is cut", (*trouble).markTail, (*trouble).cutTail},
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
				must(t, l.lose(s.trouble, context.WithoutCancel(t.Context())))
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
	s := newPostgresStage(t)
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

// A refusal is a state in which Redis responds but does not do its work. Commands begin and end it.
type refusal struct {
	name       string
	begin, end []string
}

func refusals() []refusal {
	nowhere := "REPLICAOF 127.0.0.1 1" // no master is there
	return []refusal{
		{"OOM", []string{"CONFIG SET maxmemory 1mb"}, []string{"CONFIG SET maxmemory 0"}},
		{"READONLY", []string{nowhere}, []string{"REPLICAOF NO ONE"}},
		{
			"MASTERDOWN",
			[]string{"CONFIG SET replica-serve-stale-data no", nowhere},
			[]string{"REPLICAOF NO ONE", "CONFIG SET replica-serve-stale-data yes"},
		},
		{"NOREPLICAS", []string{"CONFIG SET min-replicas-to-write 1"}, []string{"CONFIG SET min-replicas-to-write 0"}},
	}
}

// TestRedis_RefusalLosesNothing checks that a refusing Redis decides nothing: everything works again immediately
// afterwards.
func TestRedis_RefusalLosesNothing(t *testing.T) {
	times := harness.Rounds(1, 200)
	harness.Record(t, "%d times each: OOM, READONLY, MASTERDOWN, NOREPLICAS", times)
	s := newRedisStage(t)
	for _, r := range refusals() {
		t.Run(r.name, func(t *testing.T) {
			for range times {
				d := newBaseline(t, s.site, func() {})
				tell(t, s.running.RedisURL, r.begin...)
				d.wantsUnavailable(t)
				d.wantsUnaffected(t)
				tell(t, s.running.RedisURL, r.end...)
				d.wantsCode(t)
				d.wantsKept(t)
			}
		})
	}
}

// TestRedis_ScriptFlushIsUnnoticed flushes the scripts, which Redis also forgets when it restarts: no client notices.
func TestRedis_ScriptFlushIsUnnoticed(t *testing.T) {
	times := harness.Rounds(4, 2_000)
	harness.Record(t, "SCRIPT FLUSH %d times", times)
	s := newRedisStage(t)
	tokens := s.connector.Connect(t, s.owner)
	for range times {
		tell(t, s.running.RedisURL, "SCRIPT FLUSH SYNC")
		tokens = s.connector.Refresh(t, tokens.RefreshToken).Tokens(t)
	}
	s.connector.WantsWorking(t, tokens)
}

// A script has run, and its reply is lost or replaced by another reply, as on a desynchronized connection. The
// request is retried or gets 503: no caller gets the data of another, no grant ends, and the credential works
// afterwards.
func TestReplies_LostOrMixedUp(t *testing.T) {
	t.Parallel()
	s := newPostgresStage(t) // whose requests do not wait long for a store
	relay := relayRedis(t, s.running)
	connector, owner := s.connector, s.owner
	connector.Connect(t, owner) // so that there is an "ok" reply

	t.Run("one is lost", func(t *testing.T) {
		attempt := connector.Begin()
		form := attempt.CodeForm(attempt.Code(t, owner))
		relay.Lose(1)
		tokens := attempt.Post(t, form).Tokens(t)
		relay.WantsDone(t)
		relay.Lose(1)
		tokens = connector.WantsWorking(t, tokens)
		relay.WantsDone(t)
		connector.WantsWorking(t, tokens)
	})
	for name, spoil := range map[string]func(*testing.T){
		"none comes":     func(*testing.T) { relay.Lose(EveryAnswer) },
		"all are others": func(t *testing.T) { relay.Mistake(t, "ok", EveryAnswer) },
	} {
		t.Run(name, func(t *testing.T) {
			tokens, attempt := connector.Connect(t, owner), connector.Begin()
			form := attempt.CodeForm(attempt.Code(t, owner))
			requests := []func() harness.Answer{ // each waits for Redis
				func() harness.Answer { return attempt.Post(t, form) },
				func() harness.Answer { return connector.Refresh(t, tokens.RefreshToken) },
			}
			spoil(t)
			refused := harness.Concurrently(len(requests), func(i int) harness.Answer { return requests[i]() })
			relay.Stop(t)
			for i, request := range requests { // the decisions have been undone by then
				refused[i].WantsRetryAfter(t).WantsFlat(t, http.StatusServiceUnavailable, "temporarily_unavailable")
				var answer harness.Answer
				await.True(t, "Redis is used again", func() bool { // on a busy machine later than at once
					answer = request()
					return answer.Status != http.StatusServiceUnavailable
				})
				connector.WantsWorking(t, connector.WantsWorking(t, answer.Tokens(t)))
			}
		})
	}
	t.Run("another's yes", func(t *testing.T) {
		attempt := connector.Begin()
		form := attempt.CodeForm(attempt.Code(t, owner))
		form.Set("code_verifier", connector.Begin().Verifier)
		relay.Mistake(t, "ok", 1)
		refused := attempt.Post(t, form)
		relay.WantsDone(t)
		refused.WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		form.Set("code_verifier", attempt.Verifier)
		connector.WantsWorking(t, attempt.Post(t, form).Tokens(t))
	})
	t.Run("another's end", func(t *testing.T) {
		guessed := connector.Begin()
		form := guessed.CodeForm(guessed.Code(t, owner))
		form.Set("code_verifier", connector.Begin().Verifier)
		for range 5 {
			guessed.Post(t, form).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
		}
		attempt := connector.Begin()
		form = attempt.CodeForm(attempt.Code(t, owner))
		relay.Mistake(t, "burned", 1)
		tokens := attempt.Post(t, form).Tokens(t)
		relay.WantsDone(t)
		connector.WantsWorking(t, tokens)
	})
}
