package redis

import (
	"context"
	"net"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"
)

// A witness notes on the way to a node that a command may have got there though no answer came. The last try of several may well be
// one that certainly did not, and says nothing about those before it.
type witness struct{}

type doubtKey struct{}

// witnessed is a context in which doubt becomes true once a try may have been more than a try.
func witnessed(ctx context.Context) (watched context.Context, doubt *atomic.Bool) {
	doubt = new(atomic.Bool)
	return context.WithValue(ctx, doubtKey{}, doubt), doubt
}

func note(ctx context.Context, err error) {
	if doubt, ok := ctx.Value(doubtKey{}).(*atomic.Bool); ok && err != nil && !neverSent(err) {
		doubt.Store(true)
	}
}

// DialHook is goredis.Hook's.
func (witness) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return next(ctx, network, address)
	}
}

// ProcessHook is goredis.Hook's.
func (witness) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, command goredis.Cmder) error {
		err := next(ctx, command)
		note(ctx, err)
		return err
	}
}

// ProcessPipelineHook is goredis.Hook's: a command for a slot that moves is sent together with ASKING.
func (witness) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, commands []goredis.Cmder) error {
		err := next(ctx, commands)
		note(ctx, err)
		return err
	}
}
