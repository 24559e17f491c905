package redis

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// shifted is a hook that replaces one response of a script with another. It sits between the connectionGuard
// and the connection.
type shifted struct {
	loses
	foreign atomic.Pointer[any]
}

func (s *shifted) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, command goredis.Cmder) error {
		err := next(ctx, command)
		script, is := command.(*goredis.Cmd)
		if !is || err != nil || !strings.HasPrefix(command.Name(), "eval") {
			return err
		}
		foreign := s.foreign.Swap(nil)
		if foreign == nil {
			return nil
		}
		script.SetVal(*foreign)
		if *foreign == nil {
			script.SetErr(goredis.Nil)
		}
		return script.Err()
	}
}

func (r *grantsTest) shift() *shifted {
	s := &shifted{}
	r.rdb.AddHook(s)
	return s
}

func (s *shifted) next(foreign any) { s.foreign.Store(&foreign) }

// errOf returns the error of a call whose result the test does not need.
func errOf(_ any, err error) error { return err }

func outOfStep(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, grant.ErrNotCommitted) {
		t.Errorf("%s: %v, want a lost response", what, err)
	}
}

// A response to another command is discarded, even if the same script produced it.
func TestRun_ForeignResponseCountsAsLost(t *testing.T) {
	r := newGrantsTest(t)
	r.activate()
	s, cache, counters := r.shift(), NewReplayCache(r.rdb), NewLoginCounters(r.rdb)
	ctx, step := t.Context(), grant.Step{GrantID: uuid.New(), Nonce: "n", Hash: hash(2)}
	for _, foreign := range []any{
		"ok", "replay", "ok 1z2y", "burned 1z2y", "0 1z2y", "", int64(0), []any{int64(1), int64(0)}, nil,
	} {
		for what, call := range map[string]func() error{
			"issue":      func() error { return errOf(r.Issue(ctx, uuid.New(), 1, hash(1), r.terms, r.ends)) },
			"revoke":     func() error { return r.Revoke(ctx, uuid.New(), grant.ByUser, r.ends) },
			"repair":     func() error { return r.Repair(ctx, grant.Grant{ID: uuid.New(), Ends: r.ends}) },
			"undo":       func() error { return errOf(r.Undo(ctx, uuid.New(), "n", grant.Undo{})) },
			"rotate":     func() error { return errOf(r.decideToken(ctx, step, 1, nil, hash(2))) },
			"exchange":   func() error { return errOf(r.decideCode(ctx, step, hash(1), r.terms, hash(2))) },
			"superseded": func() error { return errOf(r.Superseded(ctx, step, grant.Grant{ID: uuid.New()})) },
			"tally":      func() error { return errOf(counters.Count(ctx, uuid.NewString(), 1, time.Minute, true)) },
		} {
			s.next(foreign)
			outOfStep(t, what, call())
		}
		key := uuid.NewString()
		for _, first := range []bool{true, false} { // each is called again with the nonce of its first call
			s.next(foreign)
			if got, err := cache.First(ctx, key, time.Minute); err != nil || got != first {
				t.Errorf("response %v: first %t %v, want %t", foreign, got, err, first)
			}
		}
	}
}

// A repeated call has another mark than the first: a late response does not match a later call.
func TestRun_EachCallHasUniqueMark(t *testing.T) {
	r := newGrantsTest(t)
	r.activate()
	all := &seen{}
	r.rdb.AddHook(all)
	r.want(grant.OK)(r.rotate("a", 1, 11, 12))
	r.want(grant.OK)(r.rotate("a", 1, 11, 12))
	if n := len(all.answers); n < 2 || all.answers[n-1] == all.answers[n-2] {
		t.Errorf("%v", all.answers)
	}
}

// seen is a hook that records the results of scripts.
type seen struct {
	loses
	answers []any
}

func (s *seen) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, command goredis.Cmder) error {
		err := next(ctx, command)
		if script, is := command.(*goredis.Cmd); is && err == nil {
			s.answers = append(s.answers, script.Val())
		}
		return err
	}
}

// A call without a response is repeated with its nonce, and the first decision stands.
func TestG8_ForeignReplayRevokesNothing(t *testing.T) {
	r := newGrantsTest(t)
	r.activate()
	s := r.shift()
	s.next("replay 1z2y")
	outOfStep(t, "rotate", errOf(r.rotate("a", 1, 11, 12)))
	r.want(grant.OK)(r.rotate("a", 1, 11, 12))
	r.want(grant.OK)(r.rotate("b", 2, 12, 13))
}

// The connection of the foreign response is unknown, so none of the existing connections is used again.
func TestRun_ForeignResponseClosesAllConnections(t *testing.T) {
	r := newGrantsTest(t)
	r.activate()
	s := r.shift()
	before := r.connections()
	used := func(id int64) bool { return slices.Contains(before, id) }
	if again := r.connections(); !slices.ContainsFunc(again, used) {
		t.Fatalf("none of %v was reused: %v", before, again)
	}
	s.next("ok 1z2y")
	outOfStep(t, "rotate", errOf(r.rotate("a", 1, 11, 12)))
	if after := r.connections(); slices.ContainsFunc(after, used) {
		t.Errorf("%v includes some of %v", after, before)
	}
}

// connections returns the Redis client IDs of the connections that concurrent callers use.
func (r *grantsTest) connections() []int64 {
	r.Helper()
	var group sync.WaitGroup
	var mu sync.Mutex
	var ids []int64
	for range 4 {
		group.Go(func() {
			pipe := r.rdb.Pipeline()
			id := pipe.ClientID(r.Context())
			_, err := pipe.Exec(r.Context())
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				r.Error(err)
			}
			ids = append(ids, id.Val())
		})
	}
	group.Wait()
	return ids
}

// With TLS there is no raw connection to inspect. A caller that waits for a response at that moment does not
// get it.
func TestConnectionGuard_OldConnectionsFail(t *testing.T) {
	below, far := net.Pipe()
	w := new(connectionGuard)
	dial := w.DialHook(func(context.Context, string, string) (net.Conn, error) { return below, nil })
	c, err := dial(t.Context(), "tcp", "")
	must(t, err)
	must(t, below.SetDeadline(time.Now().Add(await.Long)))
	buffer, written := make([]byte, 1), make(chan struct{})
	write := func() {
		go func() {
			_, _ = far.Write([]byte("x"))
			written <- struct{}{}
		}()
	}
	write()
	if _, err := c.Read(buffer); err != nil {
		t.Error(err)
	}
	<-written
	guarded := c.(*guardedConnection)
	raw, err := guarded.SyscallConn()
	if err != nil || raw.Read(func(uintptr) bool { t.Error("read from the raw connection"); return true }) != nil {
		t.Errorf("valid connection: %v", err)
	}
	w.epoch.Add(1)
	write()
	if _, err := c.Read(buffer); !errors.Is(err, errOutOfStep) {
		t.Errorf("read: %v", err)
	}
	<-written
	if _, err := c.Write(buffer); !errors.Is(err, errOutOfStep) {
		t.Errorf("write: %v", err)
	}
	if _, err := guarded.SyscallConn(); !errors.Is(err, errOutOfStep) {
		t.Errorf("before reuse: %v", err)
	}
}

// The last try failed to connect, which says nothing about the previous try, whose response was lost.
func TestConnectionGuard_RemembersTryThatMayHaveArrived(t *testing.T) {
	ctx, observed := observe(t.Context())
	dial := &net.OpError{Op: "dial", Err: io.EOF}
	guard := new(connectionGuard)
	try := func(err error) {
		process := guard.ProcessHook(func(context.Context, goredis.Cmder) error { return err })
		_ = process(ctx, goredis.NewCmd(ctx, "ping"))
	}
	try(nil)
	try(dial)
	if observed.doubt.Load() {
		t.Error("doubt although nothing was sent")
	}
	try(io.EOF)
	try(dial)
	if !observed.doubt.Load() {
		t.Error("no doubt although an answer was lost")
	}
}

func TestHealthGate_WaitsForServerWithinLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p healthGate
		answers := func(within time.Duration) bool { return p.available(t.Context(), within) }
		if !answers(0) {
			t.Error("the zero value reports a silent server")
		}
		probes, recovered := 0, time.Now().Add(time.Second)
		probe := func() bool {
			probes++
			return time.Now().After(recovered)
		}
		p.stopped(probe)
		p.stopped(func() bool { t.Error("probed twice"); return true })
		began := time.Now()
		if answers(200*time.Millisecond) || time.Since(began) != 200*time.Millisecond {
			t.Errorf("after %s", time.Since(began))
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if p.available(over, time.Hour) {
			t.Error("reports true after the caller's context ended")
		}
		if !answers(time.Minute) || time.Since(began) > 2*time.Second {
			t.Errorf("after %s", time.Since(began))
		}
		if !answers(0) || probes < 10 {
			t.Errorf("%d probes", probes)
		}
	})
}

// A call to a server that does not answer may have been received. The next ones are refused and certainly were not,
// until the server answers again.
func TestRun_SilentServerIsSentNothing(t *testing.T) {
	rdb, server := newClient(t, 0)
	grants, id := NewGrants(rdb), uuid.New()
	revoke := func() error { return grants.Revoke(t.Context(), id, grant.ByUser, time.Now().Add(time.Hour)) }
	await.NoError(t, revoke) // a busy machine may need more than the limit of a call
	if !grants.Responds(t.Context(), id) {
		t.Error("a server that answered does not respond")
	}
	must(t, server.Pause())
	if err := revoke(); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, grant.ErrNotCommitted) {
		t.Errorf("the first call: %v, want one that may have been received", err)
	}
	if grants.Responds(t.Context(), id) {
		t.Error("a silent server responds")
	}
	if err := revoke(); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, grant.ErrNotCommitted) {
		t.Errorf("the next call: %v, want one that was not sent", err)
	}
	server.Resume()
	await.NoError(t, revoke)
}

// A deadline by the clock of a server that no call has reached yet costs a query.
func TestDeadline_IsByClockOfServer(t *testing.T) {
	rdb, process := newClient(t, testkit.StoreWait)
	s := newScripts(rdb)
	one := s.server(t.Context(), "k")
	if deadline, err := s.deadline(context.Background(), one, "k"); deadline != 0 || err != nil {
		t.Errorf("without a deadline: %d %v", deadline, err)
	}
	end := time.Now().Add(time.Hour)
	ctx, cancel := context.WithDeadline(t.Context(), end)
	defer cancel()
	began := time.Now()
	deadline, err := s.deadline(ctx, one, "k")
	latest := end.UnixMilli() // both clocks are this machine's
	earliest := end.Add(-time.Since(began) - drift(time.Hour) - 2*time.Millisecond).UnixMilli()
	if err != nil || deadline < earliest || deadline > latest {
		t.Errorf("in an hour: %d %v, want %d to %d", deadline, err, earliest, latest)
	}
	process.Stop()
	if again, err := s.deadline(ctx, one, "k"); again != deadline || err != nil {
		t.Errorf("of a known clock: %d %v, want %d", again, err, deadline)
	}
	if unknown, err := newScripts(rdb).deadline(ctx, new(server), "k"); unknown != 0 || err == nil {
		t.Errorf("of a clock that cannot be queried: %d %v", unknown, err)
	}
}

// The estimate of a server's clock is a lower bound, whatever the rates of the two clocks (500 parts per million).
func TestClock_DeadlineIsNeverLate(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(ms int64) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	if got := new(clock).deadline(start); got != 0 {
		t.Errorf("without a response: %d", got)
	}
	const first = 1_000 + 100_000 - 50 // the bound at 200 s by the first response, which came at 100 s
	for what, second := range map[string]struct{ server, sent, received, want int64 }{
		"a tighter one":                {51_000, 149_990, 150_000, 51_000 + 50_000 - 25},
		"a slower one":                 {50_000, 140_000, 150_000, first},
		"the lowest that it can be":    {40_979, 140_000, 150_000, first},
		"of a clock that was set back": {40_978, 140_000, 150_000, 40_978 + 50_000 - 25},
		"of a clock that was set on":   {900_000, 140_000, 150_000, 900_000 + 50_000 - 25},
	} {
		var one clock
		one.observe(clockSample{server: 1_000, sent: at(0), received: at(100_000)})
		if got := one.deadline(at(200_000)); got != first {
			t.Errorf("one response: %d, want %d", got, first)
		}
		one.observe(clockSample{server: second.server, sent: at(second.sent), received: at(second.received)})
		if got := one.deadline(at(200_000)); got != second.want {
			t.Errorf("%s: %d, want %d", what, got, second.want)
		}
	}
}
