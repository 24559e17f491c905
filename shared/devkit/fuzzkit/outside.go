package fuzzkit

import (
	"context"
	"fmt"
	"testing"
)

// Outside wraps a testing.TB so that fuzz inputs can use what was made for the fuzz test: testing.F itself
// does not allow that. A failure panics.
func Outside(t testing.TB) testing.TB { return outside{t} }

type outside struct{ testing.TB }

func (outside) Context() context.Context          { return context.Background() }
func (outside) Helper()                           {}
func (outside) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (outside) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Addresses generates client addresses, a new one for each request, so that rate limits do not affect other
// inputs.
type Addresses struct{ last uint32 }

// Next returns the next address.
func (a *Addresses) Next() string {
	a.last++
	return fmt.Sprintf("10.%d.%d.%d", byte(a.last>>16), byte(a.last>>8), byte(a.last))
}
