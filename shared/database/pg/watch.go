package pg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Watch treats the server as silent if no statement ends for suspectAfter, and then neither a statement nor a probe
// gets a response within the rest of DefaultWait. A caller gets its 503 after DefaultWait, which must be below 300 ms.
const (
	suspectAfter = 50 * time.Millisecond

	// DefaultWait is how long callers wait for a server that does not respond, unless NewWatch gets another value.
	DefaultWait = 270 * time.Millisecond

	// MaxWait is the longest wait that a service may be configured to have. Responses must begin within 30 s.
	MaxWait = 20 * time.Second

	// CommandWait is how long an operator's command waits.
	CommandWait = 10 * time.Second

	laterWithin = time.Second           // for a probe while the server is silent
	probePause  = 20 * time.Millisecond // between two probes
	// The waits for a probe are counted in steps, not by the clock. On a busy machine, each step takes longer, so the
	// server gets more time.
	step = 10 * time.Millisecond
)

// errSilent is the cause with which a Watch cancels the context of a statement.
var errSilent = errors.New("the server does not respond")

// A Watch cancels the statements of a process when the server does not respond, and refuses new ones until it does. A
// probe distinguishes a silent server from a statement that waits for a lock or a slow disk. Without a Watch, callers
// of a silent server wait for the time limits of their statements, which must be generous.
//
// A Watch is a pgx tracer (multitracer finds its interfaces). Statements that it cancels fail with
// context.DeadlineExceeded. It is safe for concurrent use.
type Watch struct {
	probe       func(context.Context) error
	probeWithin time.Duration

	mu      sync.Mutex
	running map[*operation]struct{}
	since   time.Time // when the server last responded, or when the first operation after that began
	armed   bool      // whether a check is scheduled
	silent  bool
}

// NewWatch returns a Watch. probe sends the server a request that needs no lock and no disk, and returns after the
// response or when the context ends. Its connection must not use the Watch as a tracer. wait is how long callers wait
// for a server that does not respond; 0 means DefaultWait.
func NewWatch(probe func(context.Context) error, wait time.Duration) *Watch {
	return &Watch{
		probe:       probe,
		probeWithin: max(cmp.Or(wait, DefaultWait), DefaultWait) - suspectAfter,
		running:     map[*operation]struct{}{},
	}
}

// CheckWait returns an error unless wait is 0 or between DefaultWait and MaxWait.
func CheckWait(wait time.Duration) error {
	if wait != 0 && (wait < DefaultWait || wait > MaxWait) {
		return fmt.Errorf("must be 0, or between %v and %v", DefaultWait, MaxWait)
	}
	return nil
}

// An operation is a statement, or the wait for a connection.
type operation struct {
	context.Context
	cancel context.CancelCauseFunc
	began  time.Time
}

// Err returns context.DeadlineExceeded if the Watch ended the operation. context.Canceled would mean that the caller
// canceled it.
func (o *operation) Err() error {
	if context.Cause(o.Context) == errSilent {
		return context.DeadlineExceeded
	}
	return o.Context.Err()
}

type operationKey struct{}

// Value returns the operation itself for operationKey.
func (o *operation) Value(key any) any {
	if key == (operationKey{}) {
		return o
	}
	return o.Context.Value(key)
}

// Silent reports whether the server is not responding, as far as is known. It does no I/O.
func (w *Watch) Silent() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.silent
}

func (w *Watch) start(ctx context.Context) context.Context {
	inner, cancel := context.WithCancelCause(ctx)
	one := &operation{Context: inner, cancel: cancel, began: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.silent {
		cancel(errSilent)
		return one
	}
	if len(w.running) == 0 {
		w.since = one.began
	}
	w.running[one] = struct{}{}
	if !w.armed {
		w.armed = true
		time.AfterFunc(suspectAfter, w.check)
	}
	return one
}

// end ends the operation of ctx. answered reports whether the server responded, given how long the operation took.
func (w *Watch) end(ctx context.Context, answered func(took time.Duration) bool) {
	one, ok := ctx.Value(operationKey{}).(*operation)
	if !ok {
		return
	}
	w.mu.Lock()
	delete(w.running, one)
	if answered(time.Since(one.began)) {
		w.since = time.Now()
	}
	w.mu.Unlock()
	one.cancel(nil)
}

// ended ends a statement. An error is a response, unless the context ended.
func (w *Watch) ended(ctx context.Context, err error) {
	w.end(ctx, func(time.Duration) bool { return err == nil || ctx.Err() == nil })
}

// check probes the server if nothing ended for suspectAfter.
func (w *Watch) check() {
	w.mu.Lock()
	if len(w.running) == 0 {
		w.armed = false
		w.mu.Unlock()
		return
	}
	quiet, since := time.Since(w.since), w.since
	w.mu.Unlock()
	if quiet < suspectAfter {
		time.AfterFunc(suspectAfter-quiet, w.check)
		return
	}
	answers := w.answers(w.probeWithin)
	w.mu.Lock()
	if answers {
		w.since = time.Now()
	}
	if w.since.After(since) { // a probe or a statement was answered
		w.mu.Unlock()
		time.AfterFunc(suspectAfter, w.check)
		return
	}
	w.silent = true
	for one := range w.running {
		one.cancel(errSilent)
	}
	w.mu.Unlock()
	for !w.answers(laterWithin) {
		time.Sleep(probePause)
	}
	w.mu.Lock()
	w.silent, w.since = false, time.Now()
	w.mu.Unlock()
	time.AfterFunc(suspectAfter, w.check)
}

// answers reports whether the server responds. An error other than a timeout or cancellation is also a response. A
// probe that times out earlier than within, by its own limit, is repeated after probePause.
func (w *Watch) answers(within time.Duration) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	answered := make(chan struct{})
	go func() {
		for ctx.Err() == nil {
			err := w.probe(ctx)
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
				close(answered)
				return
			}
			time.Sleep(probePause)
		}
	}()
	timer := time.NewTimer(step)
	defer timer.Stop()
	for range within / step {
		timer.Reset(step)
		select {
		case <-answered:
			return true
		case <-timer.C:
		}
	}
	return false
}

// TraceQueryStart is part of pgx.QueryTracer.
func (w *Watch) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return w.start(ctx)
}

// TraceQueryEnd is part of pgx.QueryTracer.
func (w *Watch) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	w.ended(ctx, data.Err)
}

// TraceBatchStart is part of pgx.BatchTracer.
func (w *Watch) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return w.start(ctx)
}

// TraceBatchQuery is part of pgx.BatchTracer.
func (w *Watch) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd is part of pgx.BatchTracer.
func (w *Watch) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	w.ended(ctx, data.Err)
}

// TraceCopyFromStart is part of pgx.CopyFromTracer.
func (w *Watch) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	return w.start(ctx)
}

// TraceCopyFromEnd is part of pgx.CopyFromTracer.
func (w *Watch) TraceCopyFromEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceCopyFromEndData) {
	w.ended(ctx, data.Err)
}

// TraceAcquireStart is part of pgxpool.AcquireTracer. A caller waits for a connection while other callers hold them
// all.
func (w *Watch) TraceAcquireStart(
	ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData,
) context.Context {
	return w.start(ctx)
}

// TraceAcquireEnd is part of pgxpool.AcquireTracer. The pool returns an idle connection immediately, without a response
// of the server. A longer wait ended with the ping of a connection, or when another caller released one.
func (w *Watch) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, data pgxpool.TraceAcquireEndData) {
	w.end(ctx, func(took time.Duration) bool { return data.Err == nil && took > suspectAfter })
}
