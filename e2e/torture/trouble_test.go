package torture

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
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

// A server can be killed and started again, and be frozen for a while.
type server interface {
	Kill()
	Restart(ctx context.Context) error
	Pause() error
	Resume()
}

// stall freezes one store and then the other while clients work.
func (x *trouble) stall(t *testing.T) {
	for i, store := range []server{x.running.Redis, x.postgres} {
		time.Sleep(50*time.Millisecond + rand.N(100*time.Millisecond))
		made := fault{name: []string{"redis: frozen", "postgres: frozen"}[i], from: time.Now()}
		if err := store.Pause(); err != nil {
			t.Errorf("%s: %v", made.name, err)
		}
		time.Sleep(stallDurations[rand.IntN(2)])
		store.Resume()
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
	redis, process := x.running.Redis, x.running.Authservers[rand.IntN(len(x.running.Authservers))]
	frozen := func(s server) func(context.Context) error {
		return func(context.Context) error {
			defer s.Resume()
			defer time.Sleep(frozenFor)
			return s.Pause()
		}
	}
	ended := func(s server, end func()) func(context.Context) error {
		return func(ctx context.Context) error { end(); return s.Restart(ctx) }
	}
	endPostgres := []func(){x.postgres.Kill, x.postgres.Stop}[rand.IntN(2)]
	// The copy must be restored in the batch in which it was made: a batch has two faults.
	return []kind{
		{"a copy of what redis stores is kept", false, true, func(context.Context) error { return x.keepCopy() }},
		{"redis: the older copy is put back", true, false, x.putBack},
		{"redis: FLUSHALL", true, false, func(context.Context) error { return flushAll(x.running.RedisURL) }},
		{"redis: frozen", false, false, frozen(redis)},
		{"postgres: killed or stopped", false, false, ended(x.postgres, endPostgres)},
		{"authserver: killed", false, false, ended(process, process.Kill)},
		{"redis: killed", false, false, ended(redis, redis.Kill)},
		{"postgres: frozen", false, false, frozen(x.postgres)},
		{"redis: its disk is lost", true, false, func(ctx context.Context) error {
			redis.Kill()
			if err := redis.Forget(); err != nil {
				return err
			}
			return redis.Restart(ctx)
		}},
		{"authserver: frozen", false, false, frozen(process)},
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
	return len(slices.DeleteFunc(slices.Clone(x.made), func(f fault) bool { return f.harmless }))
}

func (x *trouble) memoryLostBetween(from, to int64) bool {
	return slices.ContainsFunc(x.made, func(f fault) bool {
		return f.memoryLost && f.from.UnixNano() < to && f.to.UnixNano() > from
	})
}

func (x *trouble) after(from time.Time) []fault {
	return slices.DeleteFunc(slices.Clone(x.made), func(f fault) bool { return !f.to.After(from) })
}
