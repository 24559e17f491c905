package apt

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func silent(string) {}

func TestWithoutAptThereIsNoWay(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := Ensure(t.Context(), t.TempDir(), silent, "redis-server"); !errors.Is(err, ErrNoWay) {
		t.Errorf("got %v", err)
	}
}

func TestAFailureIsTheLastLineWritten(t *testing.T) {
	err := run(t.Context(), nil, "/bin/sh", "-c", "echo first; echo the reason >&2; exit 4")
	if err == nil || !strings.HasSuffix(err.Error(), ": the reason") {
		t.Errorf("got %v", err)
	}
}

func TestRunEndsWithItsContextAndTakesItsChildrenAlong(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	err := run(ctx, nil, "/bin/sh", "-c", "sleep 60; true")
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 5*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}
