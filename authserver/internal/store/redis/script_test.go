package redis

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/devkit/await"
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
	ctx := t.Context()
	for _, foreign := range []any{
		"ok",
		"replay",
		"ok 1z2y",
		"burned 1z2y",
		"0 1z2y",
		"",
		int64(0),
		[]any{int64(1), int64(0)},
		nil,
	} {
		next := func() { s.next(foreign) }
		next()
		_, err := r.Issue(ctx, uuid.New(), 1, hash(1), r.terms, r.ends)
		outOfStep(t, "issue", err)
		next()
		_, err = r.decideCode(ctx, grant.Step{GrantID: uuid.New(), Nonce: "n"}, hash(1), r.terms, hash(2))
		outOfStep(t, "exchange", err)
		next()
		_, err = r.decideToken(ctx, grant.Step{Nonce: "n"}, 1, nil, hash(2))
		outOfStep(t, "rotate", err)
		next()
		_, err = r.Undo(ctx, uuid.New(), "n", grant.Undo{})
		outOfStep(t, "undo", err)
		next()
		_, err = r.Superseded(ctx, grant.Step{Nonce: "n", Hash: hash(2)}, grant.Grant{ID: uuid.New()})
		outOfStep(t, "superseded", err)
		next()
		outOfStep(t, "revoke", r.Revoke(ctx, uuid.New(), grant.ByUser, r.ends))
		next()
		outOfStep(t, "repair", r.Repair(ctx, grant.Grant{ID: uuid.New(), Ends: r.ends}))
		next()
		_, err = counters.Count(ctx, uuid.NewString(), 1, time.Minute, true)
		outOfStep(t, "tally", err)
		next()
		key := uuid.NewString() // called again with the nonce of the first call
		if first, err := cache.First(ctx, key, time.Minute); err != nil || !first {
			t.Errorf("first call, response %v: %v %v", foreign, first, err)
		}
		next()
		if first, err := cache.First(ctx, key, time.Minute); err != nil || first {
			t.Errorf("second call, response %v: %v %v", foreign, first, err)
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
	_, err := r.rotate("a", 1, 11, 12)
	outOfStep(t, "rotate", err)
	r.want(grant.OK)(r.rotate("a", 1, 11, 12))
	r.want(grant.OK)(r.rotate("b", 2, 12, 13))
}

// The connection of the foreign response is unknown, so none of the existing connections is used again.
func TestRun_ForeignResponseClosesAllConnections(t *testing.T) {
	r := newGrantsTest(t)
	r.activate()
	s := r.shift()
	before := r.connections()
	if again := r.connections(); !slices.ContainsFunc(
		again,
		func(id int64) bool { return slices.Contains(before, id) },
	) {
		t.Fatalf("none of %v was reused: %v", before, again)
	}
	s.next("ok 1z2y")
	_, err := r.rotate("a", 1, 11, 12)
	outOfStep(t, "rotate", err)
	after := r.connections()
	if slices.ContainsFunc(after, func(id int64) bool { return slices.Contains(before, id) }) {
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
	if err != nil {
		t.Fatal(err)
	}
	if err := below.SetDeadline(time.Now().Add(await.Long)); err != nil {
		t.Fatal(err)
	}
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
