package main

import (
	"os"
	"testing"
)

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
