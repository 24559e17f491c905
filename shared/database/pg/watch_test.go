package pg

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A server responds to probes, unless it is silent.
type server struct {
	silent atomic.Bool
	probes atomic.Int32
}

func silentServer() *server {
	s := &server{}
	s.silent.Store(true)
	return s
}

func (s *server) probe(ctx context.Context) error {
	s.probes.Add(1)
	if !s.silent.Load() {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

// promptly limits the time to a response (issue 19, point 1).
const promptly = 300 * time.Millisecond

func startQuery(ctx context.Context, w *Watch) context.Context {
	return w.TraceQueryStart(ctx, nil, pgx.TraceQueryStartData{})
}

func startAcquire(ctx context.Context, w *Watch) context.Context {
	return w.TraceAcquireStart(ctx, nil, pgxpool.TraceAcquireStartData{})
}

func endQuery(ctx context.Context, w *Watch, err error) {
	w.TraceQueryEnd(ctx, nil, pgx.TraceQueryEndData{Err: err})
}

// endsPromptly checks that the operation ends promptly with context.DeadlineExceeded, and reports its end to the watch.
func endsPromptly(t *testing.T, w *Watch, operation context.Context) {
	t.Helper()
	began := time.Now()
	select {
	case <-operation.Done():
	case <-time.After(time.Minute):
		t.Fatal("the operation goes on")
	}
	if took := time.Since(began); took > promptly {
		t.Errorf("ended after %v", took)
	}
	if !errors.Is(operation.Err(), context.DeadlineExceeded) {
		t.Errorf("ended with %v", operation.Err())
	}
	w.ended(operation, operation.Err())
}

func TestWatch_EndsOperationsOfSilentServer(t *testing.T) {
	for name, start := range map[string]func(context.Context, *Watch) context.Context{
		"query":   startQuery,
		"acquire": startAcquire,
		"batch": func(ctx context.Context, w *Watch) context.Context {
			return w.TraceBatchStart(ctx, nil, pgx.TraceBatchStartData{})
		},
		"copy": func(ctx context.Context, w *Watch) context.Context {
			return w.TraceCopyFromStart(ctx, nil, pgx.TraceCopyFromStartData{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := silentServer()
				w := NewWatch(s.probe, 0)
				endsPromptly(t, w, start(t.Context(), w))
				if later := start(t.Context(), w); later.Err() == nil {
					t.Error("an operation was started on a silent server")
				}
				s.silent.Store(false)
				time.Sleep(2 * laterWithin)
				again := start(t.Context(), w)
				time.Sleep(time.Minute)
				if again.Err() != nil {
					t.Errorf("the server answers again: %v", again.Err())
				}
				w.ended(again, nil)
			})
		})
	}
}

// The probe may have its own time limit, like the ping of the stores. One that reaches it is repeated after probePause,
// so that the end of an outage is noticed soon.
func TestWatch_ProbeThatTimesOutIsNoAnswerAndIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = laterWithin / 4
		s := silentServer()
		w := NewWatch(func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			return s.probe(ctx)
		}, 0)
		endsPromptly(t, w, startQuery(t.Context(), w))
		for range 30 {
			time.Sleep(100 * time.Millisecond)
			if later := startQuery(t.Context(), w); later.Err() == nil {
				t.Fatal("an operation was started on a silent server")
			}
		}
		time.Sleep(step) // the next probe has begun
		s.silent.Store(false)
		time.Sleep(limit + 2*probePause)
		if w.Silent() {
			t.Error("the server counts as silent although it responds")
		}
		time.Sleep(2 * laterWithin) // until the probe has a response
	})
}

// A lock or a slow disk delays one statement. The server still responds to the probe.
func TestWatch_SlowStatementGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWatch(func(context.Context) error { return errors.New("too many connections") }, 0)
		slow := startQuery(t.Context(), w)
		time.Sleep(time.Minute)
		if slow.Err() != nil {
			t.Error(slow.Err())
		}
		endQuery(slow, w, nil)
	})
}

func TestWatch_ProbesOnlyIfNothingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		w := NewWatch(s.probe, 0)
		long := startQuery(t.Context(), w)
		for range 100 {
			short := startQuery(t.Context(), w)
			time.Sleep(suspectAfter / 2)
			endQuery(short, w, nil)
		}
		if count := s.probes.Load(); count > 0 {
			t.Errorf("%d probes", count)
		}
		endQuery(long, w, nil)
	})
}

// Every response takes 200 ms. The server is slow, but not silent.
func TestWatch_SlowServerIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = 200 * time.Millisecond
		w := NewWatch(func(ctx context.Context) error {
			select {
			case <-time.After(slow):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, 0)
		for range 20 {
			acquired := startAcquire(t.Context(), w)
			time.Sleep(slow) // the ping of an idle connection
			if acquired.Err() != nil {
				t.Fatal(acquired.Err())
			}
			w.TraceAcquireEnd(acquired, nil, pgxpool.TraceAcquireEndData{})
			query := startQuery(t.Context(), w)
			time.Sleep(slow)
			if query.Err() != nil {
				t.Fatal(query.Err())
			}
			endQuery(query, w, nil)
		}
		time.Sleep(2 * laterWithin) // until the last probe has a response
	})
}

// While the server is silent, the pool returns idle connections and callers cancel their operations.
func TestWatch_OnlyAnswersOfTheServerDelayTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := silentServer()
		w := NewWatch(s.probe, 0)
		ended := startQuery(t.Context(), w)
		var callers sync.WaitGroup
		callers.Go(func() {
			for range 100 {
				acquired := startAcquire(t.Context(), w)
				w.TraceAcquireEnd(acquired, nil, pgxpool.TraceAcquireEndData{})
				caller, leave := context.WithCancel(t.Context())
				query := startQuery(caller, w)
				time.Sleep(probePause)
				leave()
				endQuery(query, w, query.Err())
			}
			s.silent.Store(false)
		})
		endsPromptly(t, w, ended)
		callers.Wait()
		time.Sleep(2 * laterWithin) // until the probe has a response
	})
}

func TestWatch_CallerThatLeavesIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWatch((&server{}).probe, 0)
		caller, leave := context.WithCancel(t.Context())
		query := startQuery(caller, w)
		leave()
		<-query.Done()
		if query.Err() != context.Canceled {
			t.Errorf("ended with %v", query.Err())
		}
		endQuery(query, w, query.Err())
	})
}

func TestWatch_WaitsAsLongAsConfigured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const wait = 2 * time.Second
		s := silentServer()
		w := NewWatch(s.probe, wait)
		operation := startQuery(t.Context(), w)
		time.Sleep(wait - 2*step)
		if operation.Err() != nil || w.Silent() {
			t.Fatal("the operation ended before the wait was over")
		}
		time.Sleep(3 * step)
		if operation.Err() == nil {
			t.Fatal("the operation goes on after the wait")
		}
		endQuery(operation, w, operation.Err())
		s.silent.Store(false)
		time.Sleep(2 * laterWithin)
	})
}

func TestCheckWait(t *testing.T) {
	for wait, valid := range map[time.Duration]bool{
		0:               true,
		-time.Second:    false,
		DefaultWait - 1: false,
		DefaultWait:     true,
		MaxWait:         true,
		MaxWait + 1:     false,
	} {
		if err := CheckWait(wait); (err == nil) != valid {
			t.Errorf("%v: %v", wait, err)
		}
	}
}
