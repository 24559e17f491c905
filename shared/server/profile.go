package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"syscall"
	"time"
)

// ProfileTime is the duration of a CPU profile.
const ProfileTime = 10 * time.Second

// MemoryProfile holds the garbage collector's numbers right after a collection, in bytes.
type MemoryProfile struct {
	HeapAlloc  uint64 `json:"heapAlloc"` // live objects
	HeapInuse  uint64 `json:"heapInuse"` // spans that contain live objects
	Sys        uint64 `json:"sys"`       // obtained from the system
	Goroutines int    `json:"goroutines"`
}

// memoryFile, heapFile and cpuFile return the files of one signal. Each is renamed to its final name when it is
// complete. The CPU profile is complete ProfileTime later.
func memoryFile(dir, name string) string { return filepath.Join(dir, name+".memory.json") }
func heapFile(dir, name string) string   { return filepath.Join(dir, name+".heap.pprof") }
func cpuFile(dir, name string) string    { return filepath.Join(dir, name+".cpu.pprof") }

// ProfileOnSignal writes profiles into dir at each SIGUSR1 until ctx ends: NAME.memory.json and NAME.heap.pprof, both
// after a collection, and NAME.cpu.pprof. It returns at once. If dir is "", the signal has no effect.
//
// It does not listen on a network: a user that may send the process a signal (its own user and root) sends SIGUSR1, and
// the files appear in a directory named by the configuration. Profiles contain function names and no data.
func ProfileOnSignal(ctx context.Context, dir, name string, log *slog.Logger) {
	if dir == "" {
		signal.Ignore(syscall.SIGUSR1) // the default action would end the process
		return
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	go func() {
		defer signal.Stop(asked)
		for {
			select {
			case <-ctx.Done():
				return
			case <-asked:
				if err := writeProfiles(ctx, dir, name); err != nil {
					log.WarnContext(ctx, "profile not written", "cause", err.Error())
				}
			}
		}
	}()
}

func writeProfiles(ctx context.Context, dir, name string) error {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	err := whole(heapFile(dir, name), func(file *os.File) error { return pprof.WriteHeapProfile(file) })
	if err == nil {
		err = whole(memoryFile(dir, name), func(file *os.File) error {
			return json.NewEncoder(file).
				Encode(MemoryProfile{stats.HeapAlloc, stats.HeapInuse, stats.Sys, runtime.NumGoroutine()})
		})
	}
	if err != nil {
		return err
	}
	return whole(cpuFile(dir, name), func(file *os.File) error {
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
		select {
		case <-ctx.Done():
		case <-time.After(ProfileTime):
		}
		return nil
	})
}

// whole writes a file under a temporary name and renames it when it is complete.
func whole(path string, fill func(*os.File) error) error {
	file, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write a profile: %w", err)
	}
	err = fill(file)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("write a profile: %w", err)
	}
	return os.Rename(path+".new", path)
}
