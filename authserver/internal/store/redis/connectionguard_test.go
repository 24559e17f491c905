package redis

import (
	"context"
	"io"
	"net"
	"testing"

	goredis "github.com/redis/go-redis/v9"
)

// The last try could not connect: that says nothing about the one before, whose answer was lost.
func TestAWitnessRemembersTheTryThatMayHaveArrived(t *testing.T) {
	ctx, question := witnessed(t.Context())
	dial := &net.OpError{Op: "dial", Err: io.EOF}
	w := new(connectionGuard)
	try := func(err error) {
		_ = w.ProcessHook(func(context.Context, goredis.Cmder) error { return err })(ctx, goredis.NewCmd(ctx, "ping"))
	}
	try(nil)
	try(dial)
	if question.doubt.Load() {
		t.Error("doubt although nothing was sent")
	}
	try(io.EOF)
	try(dial)
	if !question.doubt.Load() {
		t.Error("no doubt although an answer was lost")
	}
}
