package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

func silent(string) {}

func TestInstallPackages_FailsWithoutAptGet(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := installPackages(t.Context(), t.TempDir(), silent, "redis-server"); !errors.Is(err, errCannotInstall) {
		t.Errorf("got %v", err)
	}
}

func TestRunTool_FailureQuotesItsCause(t *testing.T) {
	for script, want := range map[string]string{
		"echo first; echo the reason >&2; exit 4":                           ": the reason",
		"echo first; echo 'E: Unable to fetch x' >&2; echo bye >&2; exit 4": ": E: Unable to fetch x",
	} {
		err := runTool(t.Context(), nil, "/bin/sh", "-c", script)
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v", script, err)
		}
	}
}

func TestRunTool_ContextEndKillsChildren(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	err := runTool(ctx, nil, "/bin/sh", "-c", "sleep 600; true")
	if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took >= 10*time.Minute {
		t.Errorf("after %s: %v", took, err)
	}
}

func TestTempDir_IsUsable(t *testing.T) {
	dir, err := tempDir("almoner-memory-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if !runsPrograms(dir) {
		t.Error("programs in it cannot be run")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("it contains %v, %v", entries, err)
	}
}

func TestFreeFor_CountsMemoryOnly(t *testing.T) {
	if free := freeFor("/proc"); free != 0 {
		t.Errorf("%d bytes free in /proc", free)
	}
	if memory := availableMemory(); memory < 64<<20 {
		t.Errorf("%d bytes of memory are available to a running test", memory)
	}
}
