package redis

import (
	"context"
	"io"
	"net"
	"testing"

	goredis "github.com/redis/go-redis/v9"
)

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
