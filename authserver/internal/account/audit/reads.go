package audit

import (
	"context"
	"errors"
	"time"

	"github.com/almonerhq/almoner/shared/server/inflight"
)

// Limits of the reads of logs in one process. They use the connections to Postgres that refreshes use.
const (
	readsAtOnce = 4
	maxReads    = 256 // running or waiting
	readWait    = 3 * time.Second
)

// ErrBusy reports that too many reads of logs are running.
var ErrBusy = errors.New("too many reads of logs are running")

// Reads limits the concurrent reads of logs, by pages and by callers of the API.
type Reads struct{ turns *inflight.Requests[struct{}] }

// NewReads returns the Reads of a process.
func NewReads() Reads {
	return Reads{inflight.New[struct{}](inflight.Bounds{InFlight: maxReads, AtOnce: readsAtOnce, Wait: readWait})}
}

// Do runs read, which reads a page of a log, once fewer than four others are running. It returns ErrBusy if that takes
// longer than three seconds.
func (r Reads) Do(ctx context.Context, read func() error) error {
	return InTurn(ctx, r.turns, struct{}{}, read)
}

// InTurn runs a function in a turn of the key. It returns ErrBusy if there is none in time.
func InTurn[Key comparable](
	ctx context.Context, turns *inflight.Requests[Key], by Key, run func() error,
) error {
	turn, err := turns.Enter(ctx, by)
	switch {
	case err == nil:
		defer turn.Leave(false)
		return run()
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return ErrBusy
}
