package fuzzkit

import (
	"context"
	"fmt"
	"testing"
)

// Outside lets what was made for a fuzz test be used by its inputs as well: testing.F itself refuses to be, and a
// failure is a panic.
func Outside(t testing.TB) testing.TB { return outside{t} }

type outside struct{ testing.TB }

func (outside) Context() context.Context          { return context.Background() }
func (outside) Helper()                           {}
func (outside) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (outside) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Addresses are where strangers come from: each from an address of its own, so that nobody answers for another.
type Addresses struct{ last uint32 }

// Next is the next of them.
func (a *Addresses) Next() string {
	a.last++
	return fmt.Sprintf("10.%d.%d.%d", byte(a.last>>16), byte(a.last>>8), byte(a.last))
}
