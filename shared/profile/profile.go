// Package profile answers: where do the time and the memory of this process go?
//
// Nothing listens anywhere: whoever may send the process a signal (its own user, and root) asks by SIGUSR1, and finds
// files in a directory that the configuration names. Without a directory nothing is there to ask. Profiles name
// functions, and hold no data.
package profile

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

// CPUTime is how long processor time is watched after a signal.
const CPUTime = 10 * time.Second

// Memory is what the garbage collector knows, right after a collection. In bytes.
type Memory struct {
	HeapAlloc  uint64 `json:"heapAlloc"` // live objects
	HeapInuse  uint64 `json:"heapInuse"` // the spans that they are in
	Sys        uint64 `json:"sys"`       // had from the system
	Goroutines int    `json:"goroutines"`
}

// The files that a signal leaves, each moved into its place when it is whole. The one for processor time comes CPUTime
// later.
func memoryFile(dir, name string) string { return filepath.Join(dir, name+".memory.json") }
func heapFile(dir, name string) string   { return filepath.Join(dir, name+".heap.pprof") }
func cpuFile(dir, name string) string    { return filepath.Join(dir, name+".cpu.pprof") }

// OnSignal writes profiles into dir at each SIGUSR1, until ctx ends: NAME.memory.json, NAME.heap.pprof (both after a
// collection) and NAME.cpu.pprof. It returns at once. Where dir is "", the signal does nothing.
func OnSignal(ctx context.Context, dir, name string, log *slog.Logger) {
	if dir == "" {
		signal.Ignore(syscall.SIGUSR1) // which would end the process otherwise: whoever sends it wants to look
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
				if err := write(ctx, dir, name); err != nil {
					log.WarnContext(ctx, "no profile was written", "cause", err.Error())
				}
			}
		}
	}()
}

func write(ctx context.Context, dir, name string) error {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	err := whole(heapFile(dir, name), func(file *os.File) error { return pprof.WriteHeapProfile(file) })
	if err == nil {
		err = whole(memoryFile(dir, name), func(file *os.File) error {
			return json.NewEncoder(file).
				Encode(Memory{stats.HeapAlloc, stats.HeapInuse, stats.Sys, runtime.NumGoroutine()})
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
		case <-time.After(CPUTime):
		}
		return nil
	})
}

// whole writes a file that nobody sees before it is whole.
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
