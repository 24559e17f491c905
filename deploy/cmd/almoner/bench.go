package main

import (
	"context"
	"fmt"
	"strings"
)

// bench measures, and writes what came of it to e2e/bench/RESULTS.md. It says nothing about right and wrong.
func bench(ctx context.Context, root string) error {
	if err := dieWithParent(); err != nil {
		return err
	}
	t := newTrial(root)
	if _, err := t.ensurePackages(ctx); err != nil {
		return err
	}
	err := t.withServers(ctx, func() {
		t.step(ctx, "bench", "e2e", nil, "go", "test", "-count=1", "-timeout=30m", "-run=^TestMeasure$", "./bench", "-measure")
	})
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && len(t.failed) > 0 {
		err = fmt.Errorf("failed: %s", strings.Join(t.failed, "; "))
	}
	return err
}
