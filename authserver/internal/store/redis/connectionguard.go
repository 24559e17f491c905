package redis

import (
	"context"
	"net"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"
)

// A witness notes on the way to a node that a command may have got there though no answer came. The last try of several
// may well be one that certainly did not, and says nothing about those before it. All connections of a client are its
// own.
type connectionGuard struct{ era atomic.Int64 }

// A question is what a witness knows of one, tries included.
type question struct {
	doubt   atomic.Bool // a try may have been more than a try
	witness atomic.Pointer[connectionGuard]
}

type questionKey struct{}

// witnessed is a context in which the question is watched.
func witnessed(ctx context.Context) (watched context.Context, q *question) {
	q = new(question)
	return context.WithValue(ctx, questionKey{}, q), q
}

// outOfStep ends the era of the connections that there are.
func (q *question) outOfStep() {
	if w := q.witness.Load(); w != nil {
		w.era.Add(1)
	}
}

func (w *connectionGuard) note(ctx context.Context, err error) {
	q, asked := ctx.Value(questionKey{}).(*question)
	if !asked {
		return
	}
	q.witness.Store(w)
	if err != nil && !neverSent(err) {
		q.doubt.Store(true)
	}
}

// DialHook is goredis.Hook's.
func (w *connectionGuard) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		born := w.era.Load()
		dialled, err := next(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &guardedConnection{Conn: dialled, born: born, era: &w.era}, nil
	}
}

// ProcessHook is goredis.Hook's.
func (w *connectionGuard) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, command goredis.Cmder) error {
		err := next(ctx, command)
		w.note(ctx, err)
		return err
	}
}

// ProcessPipelineHook is goredis.Hook's: a command for a slot that moves is sent together with ASKING.
func (w *connectionGuard) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, commands []goredis.Cmder) error {
		err := next(ctx, commands)
		w.note(ctx, err)
		return err
	}
}
