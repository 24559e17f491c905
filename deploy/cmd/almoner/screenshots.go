package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// screenshots writes pictures of all pages to .almoner/screenshots, without those of an earlier run.
func screenshots(ctx context.Context, root string) error {
	if err := dieWithParent(); err != nil {
		return err
	}
	folder := filepath.Join(root, ".almoner", "screenshots")
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	t := newTestRun(root)
	if _, err := t.ensurePackages(ctx); err != nil {
		return err
	}
	arguments := []string{"test", "-count=1", "-timeout=20m", "-run=^TestScreenshots$", ".", "-screenshots=" + folder}
	err := t.withServers(ctx, func() { t.step(ctx, "screenshots", "e2e", nil, "go", arguments...) })
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && len(t.failed) > 0 {
		err = fmt.Errorf("failed: %s", strings.Join(t.failed, "; "))
	}
	return err
}
