package torture

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// trouble causes one fault after the other and records the times.
type trouble struct {
	running *stack.Stack
	// postgres is the server to kill and to freeze: a worker of citusNodes in a distributed installation.
	postgres *localstore.Postgres
	turn     int
	backup   string // an older copy of what Redis has stored
	mark     int64  // length of its append-only file (markTail)
	made     []fault
}

type fault struct {
	name       string
	from, to   time.Time
	memoryLost bool // of Redis
	harmless   bool // it only prepares another fault
}

func (f fault) String() string { return f.name + " at " + f.from.Format("05.000") }

func newTrouble(running *stack.Stack) *trouble {
	postgres := running.Postgres
	if postgres == nil {
		postgres = citusNodes[len(citusNodes)-1]
	}
	return &trouble{running: running, postgres: postgres, backup: filepath.Join(running.StoreDir(), "older-copy")}
}

const (
	frozenFor     = 700 * time.Millisecond
	calmWithin    = await.Long
	troublesBatch = 2
)

// makeSome causes the next faults of the list while clients work.
func (x *trouble) makeSome(t *testing.T) {
	for range troublesBatch {
		time.Sleep(100*time.Millisecond + rand.N(300*time.Millisecond))
		kinds := x.kinds()
		kind := kinds[x.turn%len(kinds)]
		x.turn++
		made := fault{name: kind.name, from: time.Now(), memoryLost: kind.memoryLost, harmless: kind.harmless}
		err := kind.make(context.WithoutCancel(t.Context()))
		made.to = time.Now()
		x.made = append(x.made, made)
		if err != nil {
			t.Errorf("%s: %v", kind.name, err)
		}
	}
}

// stall freezes one store and then the other while clients work.
func (x *trouble) stall(t *testing.T) {
	stores := []struct {
		name   string
		pause  func() error
		resume func()
	}{
		{"redis: frozen", x.running.Redis.Pause, x.running.Redis.Resume},
		{"postgres: frozen", x.postgres.Pause, x.postgres.Resume},
	}
	for _, store := range stores {
		time.Sleep(50*time.Millisecond + rand.N(100*time.Millisecond))
		made := fault{name: store.name, from: time.Now()}
		if err := store.pause(); err != nil {
			t.Errorf("%s: %v", store.name, err)
		}
		time.Sleep(stallDurations[rand.IntN(2)])
		store.resume()
		made.to = time.Now()
		x.made = append(x.made, made)
	}
}

type kind struct {
	name       string
	memoryLost bool
	harmless   bool
	make       func(context.Context) error
}

func (x *trouble) kinds() []kind {
	redis, postgres := x.running.Redis, x.postgres
	process := x.running.Authservers[rand.IntN(len(x.running.Authservers))]
	frozen := func(stop func() error, resume func()) func(context.Context) error {
		return func(context.Context) error {
			defer resume()
			defer time.Sleep(frozenFor)
			return stop()
		}
	}
	// The copy must be restored in the batch in which it was made: a batch has two faults.
	return []kind{
		{"a copy of what redis stores is kept", false, true, func(context.Context) error { return x.keepCopy() }},
		{"redis: the older copy is put back", true, false, func(ctx context.Context) error { return x.putBack(ctx) }},
		{"redis: FLUSHALL", true, false, func(context.Context) error { return flushAll(x.running.RedisURL) }},
		{"redis: frozen", false, false, frozen(redis.Pause, redis.Resume)},
		{
			"postgres: killed",
			false,
			false,
			func(ctx context.Context) error { postgres.Kill(); return postgres.Restart(ctx) },
		},
		{
			"authserver: killed",
			false,
			false,
			func(ctx context.Context) error { process.Kill(); return process.Restart(ctx) },
		},
		{"redis: killed", false, false, func(ctx context.Context) error { redis.Kill(); return redis.Restart(ctx) }},
		{"postgres: frozen", false, false, frozen(postgres.Pause, postgres.Resume)},
		{"redis: its disk is lost", true, false, func(ctx context.Context) error {
			redis.Kill()
			if err := redis.Forget(); err != nil {
				return err
			}
			return redis.Restart(ctx)
		}},
		{"authserver: frozen", false, false, frozen(process.Pause, process.Resume)},
	}
}

func flushAll(redisURL string) error {
	_, err := localstore.AskRedis(redisURL, "FLUSHALL")
	return err
}

func (x *trouble) stored() string { return filepath.Join(x.running.Redis.Dir, "appendonlydir") }

func (x *trouble) keepCopy() error {
	if err := os.RemoveAll(x.backup); err != nil {
		return err
	}
	return os.CopyFS(x.backup, os.DirFS(x.stored()))
}

func (x *trouble) putBack(ctx context.Context) error {
	x.running.Redis.Kill()
	if err := x.running.Redis.Forget(); err != nil {
		return err
	}
	if err := os.CopyFS(x.stored(), os.DirFS(x.backup)); err != nil {
		return err
	}
	return x.running.Redis.Restart(ctx)
}

// faults counts the faults that caused harm.
func (x *trouble) faults() int {
	count := 0
	for _, f := range x.made {
		if !f.harmless {
			count++
		}
	}
	return count
}

func (x *trouble) memoryLostBetween(from, to int64) bool {
	for _, f := range x.made {
		if f.memoryLost && f.from.UnixNano() < to && f.to.UnixNano() > from {
			return true
		}
	}
	return false
}

func (x *trouble) between(from time.Time) []fault {
	var out []fault
	for _, f := range x.made {
		if f.to.After(from) {
			out = append(out, f)
		}
	}
	return out
}
