package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

const (
	memoryDir      = "/dev/shm"
	tmpfs          = 0x01021994 // its number in statfs(2)
	memoryForFiles = 4 << 30    // several times what `make test` needs at once
	memoryForAll   = 8 << 30    // leaves the processes what they need
)

// tempDir returns a new directory for the files of a test run: in memory if there is much free memory, otherwise on
// disk. The tests create and drop about a thousand databases; on ext4 the kernel spends more time on their files than
// PostgreSQL on their content.
func tempDir(pattern string) (string, error) {
	if freeFor(memoryDir) >= memoryForFiles && availableMemory() >= memoryForAll {
		if dir, err := os.MkdirTemp(memoryDir, pattern); err == nil {
			if localstore.Reachable(memoryDir) && runsPrograms(dir) {
				return dir, nil
			}
			_ = os.RemoveAll(dir)
		}
	}
	return localstore.TempDir(pattern)
}

// freeFor returns the free bytes of a file system in memory, or 0 if dir is not in one.
func freeFor(dir string) uint64 {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil || stat.Type != tmpfs {
		return 0
	}
	return stat.Bavail * uint64(stat.Bsize)
}

// availableMemory returns the bytes that the kernel can give to processes, or 0 if it does not say (proc(5)).
func availableMemory() uint64 {
	file, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if text, found := strings.CutPrefix(lines.Text(), "MemAvailable:"); found {
			kilobytes, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 64)
			if err != nil {
				return 0
			}
			return kilobytes << 10
		}
	}
	return 0
}

// runsPrograms reports whether programs in dir can be run: containers often mount /dev/shm without that.
func runsPrograms(dir string) bool {
	program := filepath.Join(dir, "probe")
	defer func() { _ = os.Remove(program) }()
	return os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700) == nil && exec.Command(program).Run() == nil
}
