package redis

import (
	"context"
	"net"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"
)

// A connectionGuard records that a command may have reached a node although no response came. The last of
// several tries may certainly not have been sent, which says nothing about earlier tries. Each client has its
// own connectionGuard.
type connectionGuard struct{ epoch atomic.Int64 }

// A command is what a connectionGuard knows about one command to Redis, including retries.
type command struct {
	doubt atomic.Bool // whether an earlier try may have been executed
	guard atomic.Pointer[connectionGuard]
}

type commandKey struct{}

// observe returns a context in which the command is observed.
func observe(ctx context.Context) (watched context.Context, q *command) {
	q = new(command)
	return context.WithValue(ctx, commandKey{}, q), q
}

// outOfStep invalidates all existing connections.
func (c *command) outOfStep() {
	if w := c.guard.Load(); w != nil {
		w.epoch.Add(1)
	}
}

func (c *connectionGuard) record(ctx context.Context, err error) {
	q, asked := ctx.Value(commandKey{}).(*command)
	if !asked {
		return
	}
	q.guard.Store(c)
	if err != nil && !neverSent(err) {
		q.doubt.Store(true)
	}
}

// DialHook implements goredis.Hook.
func (c *connectionGuard) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		born := c.epoch.Load()
		dialled, err := next(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &guardedConnection{Conn: dialled, epoch: born, current: &c.epoch}, nil
	}
}

// ProcessHook implements goredis.Hook.
func (c *connectionGuard) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, command goredis.Cmder) error {
		err := next(ctx, command)
		c.record(ctx, err)
		return err
	}
}

// ProcessPipelineHook implements goredis.Hook: a command for a moving slot is sent together with ASKING.
func (c *connectionGuard) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, commands []goredis.Cmder) error {
		err := next(ctx, commands)
		c.record(ctx, err)
		return err
	}
}
