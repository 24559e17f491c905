package testkit

import (
	"context"
	"fmt"
	"sync"
	"testing"
)

// Once returns a function that returns what build made for the first test that called it. What build starts lasts until
// the process ends, so a package's tests share it. If build fails, every one of these tests fails.
func Once[T any](build func(t testing.TB) T) func(t testing.TB) T {
	made := sync.OnceValues(func() (value T, err error) {
		defer func() {
			if cause := recover(); cause != nil {
				err = fmt.Errorf("%v", cause)
			}
		}()
		return build(process{}), nil
	})
	return func(t testing.TB) T {
		t.Helper()
		value, err := made()
		if err != nil {
			t.Fatalf("what this package's tests share: %v", err)
		}
		return value
	}
}

// A process stands for the test where something is made for all tests of the process. It has only the methods below.
type process struct{ testing.TB }

func (process) Helper()                      {}
func (process) Cleanup(func())               {}
func (process) Failed() bool                 { return false }
func (process) Log(...any)                   {}
func (process) Logf(string, ...any)          {}
func (process) Context() context.Context     { return context.Background() }
func (process) Error(args ...any)            { panic(fmt.Sprint(args...)) }
func (process) Errorf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
func (process) Fatal(args ...any)            { panic(fmt.Sprint(args...)) }
func (process) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
