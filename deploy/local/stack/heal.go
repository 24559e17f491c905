package stack

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// A store that ends more than healings times within healingsWithin is not started again.
	healings       = 3
	healingsWithin = time.Minute

	// A store is started up to startTries times, startPause apart, because a session of the ended server may still use
	// its port or its shared memory.
	startTries = 3
	startPause = time.Second
)

// A store is a private server, PostgreSQL or Redis.
type store interface {
	Done() <-chan struct{}
	Outcome() string
	Restart(ctx context.Context) error
}

// keep starts a store again whenever it ends by itself, until ctx ends. It returns an error when the store does not
// start, or ends again and again.
func (s *Stack) keep(ctx context.Context, name string, server store) error {
	var ends []time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-server.Done():
		}
		if ctx.Err() != nil {
			return nil
		}
		outcome, began := server.Outcome(), time.Now()
		ends = append(ends, began)
		if n := len(ends) - 1 - healings; n >= 0 && began.Sub(ends[n]) < healingsWithin {
			return fmt.Errorf("%s; it ended %d times within a minute", outcome, healings+1)
		}
		s.options.say(outcome + "; starting it again")
		if err := s.startAgain(ctx, name, server); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf(
				"%s, and %s cannot be started again: %w (its data is in %s; remove the cause, then type make run)",
				outcome, name, err, s.StoreDir(),
			)
		}
		s.options.say(fmt.Sprintf("%s runs again (%s); its data is there", name, seconds(time.Since(began))))
	}
}

// startAgain starts a store that has ended. It returns the error of the last try. A start that exceeded its time limit
// is not repeated: PostgreSQL would recover from the crash again from the beginning.
func (s *Stack) startAgain(ctx context.Context, name string, server store) error {
	for try := 1; ; try++ {
		err := server.Restart(ctx)
		if err == nil || try == startTries || errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		s.options.say(fmt.Sprintf("%s did not start: %v; trying again", name, err))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(startPause):
		}
	}
}

// seconds returns a duration in a form for people.
func seconds(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }
