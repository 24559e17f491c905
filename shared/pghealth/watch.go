package pghealth

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The server does not answer if no statement ends for suspectAfter, and then neither a statement nor a probe is
// answered within probeWithin. A caller gets its 503 after the sum, which must be below 300 ms.
const (
	suspectAfter = 50 * time.Millisecond
	probeWithin  = 220 * time.Millisecond
	// Once the server is silent, there is no hurry.
	laterWithin = time.Second
	probePause  = 20 * time.Millisecond
	// step is the unit of these waits. On a busy machine steps take longer than they should, for this process as for
	// the server, and the waits are longer.
	step = 10 * time.Millisecond
)

// errSilent is why a Watch cancels the context of a statement.
var errSilent = errors.New("the server does not respond")

// A Watch ends the statements of a process when the server does not answer, and refuses new ones until it does. One
// statement that takes long, for a lock or a slow disk, is no such case: a probe decides. Without a Watch, callers of a
// server that hangs wait for the time limits of their statements, which have to be generous.
//
// It is a tracer of pgx (multitracer finds its interfaces). Statements that it ends fail with
// context.DeadlineExceeded. It is safe for concurrent use.
type Watch struct {
	probe func(context.Context) error

	mu      sync.Mutex
	running map[*operation]struct{}
	since   time.Time // when the server answered last, or when it was first asked after that
	armed   bool      // the next check is scheduled
	silent  bool
}

// NewWatch returns a Watch. probe sends a request to the server that needs no lock and no disk, and returns when it is
// answered or the context ends. Its connection must not have the Watch as a tracer.
func NewWatch(probe func(context.Context) error) *Watch {
	return &Watch{probe: probe, running: map[*operation]struct{}{}}
}

// An operation is a statement, or the wait for a connection.
type operation struct {
	context.Context
	cancel context.CancelCauseFunc
	began  time.Time
}

// Err is context.DeadlineExceeded if the Watch ended the operation: context.Canceled would mean that the caller left.
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

// end ends the operation of ctx. answered reports whether the server has answered it, by the time that it took.
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

// ended ends a statement. An error other than the end of its context is an answer.
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
	answers := w.answers(probeWithin)
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

// answers reports whether the server responds. A refusal is a response: callers get one at once, too.
func (w *Watch) answers(within time.Duration) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	answered := make(chan struct{})
	go func() {
		if err := w.probe(ctx); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			close(answered)
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

// TraceAcquireStart is part of pgxpool.AcquireTracer: a caller waits for a connection as long as others hold them all.
func (w *Watch) TraceAcquireStart(
	ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData,
) context.Context {
	return w.start(ctx)
}

// TraceAcquireEnd is part of pgxpool.AcquireTracer. The pool hands out an idle connection at once, without an answer of
// the server. What takes longer has waited for the ping of a connection, or until another caller did not need it.
func (w *Watch) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, data pgxpool.TraceAcquireEndData) {
	w.end(ctx, func(took time.Duration) bool { return data.Err == nil && took > suspectAfter })
}
