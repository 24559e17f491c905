// Package server is what the processes of both services have in common besides their routes: metrics and traces,
// readiness, work in the background, and how they start and stop.
package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"

	"github.com/almonerhq/almoner/shared/net/web"
)

// Instruments are the metrics and traces of a process.
type Instruments struct {
	Registry *Registry

	http   *httpMetrics
	stores *storeMetrics
	traces *Tracing
}

// NewInstruments makes the instruments of a service. Stop sends the remaining traces.
func NewInstruments(
	ctx context.Context, service string, settings TraceSettings, log *slog.Logger,
) (Instruments, error) {
	traces, err := StartTracing(ctx, settings, service, 0, log)
	registry := NewRegistry()
	return Instruments{
		Registry: registry,
		http:     newHTTPMetrics(registry),
		stores:   newStoreMetrics(registry),
		traces:   traces,
	}, err
}

// Stop sends the remaining traces.
func (i Instruments) Stop() { i.traces.Stop() }

// Statements returns the tracers of statements to Postgres.
func (i Instruments) Statements() []pgx.QueryTracer {
	return append(i.traces.Postgres(), statements{i.stores})
}

// Commands observes the commands to Redis.
func (i Instruments) Commands(rdb goredis.UniversalClient) error {
	rdb.AddHook(commands{i.stores})
	return i.traces.Redis(rdb)
}

// Observe returns the handler of all requests of a service. lastResort responds in place of a handler that panicked.
// others observe each request too.
func (i Instruments) Observe(
	next http.Handler, proxies web.Proxies, log *slog.Logger, lastResort http.Handler, others ...web.Watcher,
) http.Handler {
	watchers := append(append(i.traces.Watchers(), i.http), others...)
	return i.traces.Server(web.Observe(web.RecordAddress(next, proxies), log, lastResort, watchers...), proxies)
}

// Alive reports that the process runs, whatever the state of its stores.
func Alive() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		web.JSON(w, http.StatusOK, map[string]string{"status": "alive"})
	})
}

// probeTime limits the check of one part.
const probeTime = time.Second

// A Part is a dependency of requests.
type Part struct {
	Name     string
	Check    func(context.Context) error
	Required bool // whether the process is not ready without it
}

// Parts are the dependencies of a process.
type Parts []Part

// States checks the parts in order and returns their states. It calls failed for each part that does not respond, and
// ends if failed returns false.
func (p Parts) States(ctx context.Context, failed func(Part, error) bool) map[string]string {
	states := map[string]string{}
	for _, part := range p {
		// Each part has its own limit, so that a part that hangs does not use up the time of the others.
		limited, cancel := context.WithTimeout(ctx, probeTime)
		err := part.Check(limited)
		cancel()
		states[part.Name] = "ok"
		if err == nil {
			continue
		}
		states[part.Name] = "does not answer"
		if !failed(part, err) {
			break
		}
	}
	return states
}

// Ready is the check that web.Serve makes before it listens. It fails while a required part does not respond.
func (p Parts) Ready(ctx context.Context) error {
	for _, part := range p {
		if !part.Required {
			continue
		}
		if err := part.Check(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.Name, err)
		}
	}
	return nil
}

// A Process serves requests, and works in the background meanwhile.
type Process struct {
	Server   web.Server // if its address is "", the process only works
	Handler  http.Handler
	Metrics  string // listen address of the metrics, or ""
	Registry *Registry
	Log      *slog.Logger
}

// Run runs the process until ctx ends, and then lets the requests in flight finish. Each work runs until the context
// that it gets ends: with ctx or, if outlasting, when no request is left. Run calls ready with the listen address, and
// returns when all work has ended.
func (p Process) Run(ctx context.Context, ready func(net.Addr), outlasting bool, works ...func(context.Context)) error {
	endMetrics, err := serveMetrics(p.Metrics, p.Registry, p.Log)
	if err != nil {
		return err
	}
	defer endMetrics()
	working := ctx
	if outlasting {
		working = context.WithoutCancel(ctx)
	}
	working, stop := context.WithCancel(working)
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	for _, work := range works {
		group.Go(func() { work(working) })
	}
	if p.Server.Address == "" {
		<-ctx.Done()
		return nil
	}
	return web.Serve(ctx, p.Server, p.Handler, p.Log, ready)
}

// Repeat does work again and again until ctx ends, and rests after each time for as long as work returns. It calls
// failing for the first of several failures in a row.
func Repeat(ctx context.Context, failing func(error), work func(context.Context) (rest time.Duration, err error)) {
	for failed := false; ctx.Err() == nil; {
		rest, err := work(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			failing(err)
		}
		failed = err != nil
		Pause(ctx, rest)
	}
}

// Pause waits for a time, or until ctx ends.
func Pause(ctx context.Context, duration time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(duration):
	}
}

// ProfileTime is the duration of a CPU profile.
const ProfileTime = 10 * time.Second

// MemoryProfile holds the garbage collector's numbers right after a collection, in bytes.
type MemoryProfile struct {
	HeapAlloc  uint64 `json:"heapAlloc"` // live objects
	HeapInuse  uint64 `json:"heapInuse"` // spans that contain live objects
	Sys        uint64 `json:"sys"`       // obtained from the system
	Goroutines int    `json:"goroutines"`
}

// ProfileOnSignal writes profiles into dir at each SIGUSR1 until ctx ends: NAME.memory.json and NAME.heap.pprof, both
// after a collection, and NAME.cpu.pprof, which is complete ProfileTime later. Each is renamed to its final name when
// it is complete. ProfileOnSignal returns at once. If dir is "", the signal has no effect.
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
				if err := writeProfiles(ctx, filepath.Join(dir, name)); err != nil {
					log.WarnContext(ctx, "profile not written", "cause", err.Error())
				}
			}
		}
	}()
}

func writeProfiles(ctx context.Context, path string) error {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	err := whole(path+".heap.pprof", func(file *os.File) error { return pprof.WriteHeapProfile(file) })
	if err == nil {
		err = whole(path+".memory.json", func(file *os.File) error {
			return json.NewEncoder(file).
				Encode(MemoryProfile{stats.HeapAlloc, stats.HeapInuse, stats.Sys, runtime.NumGoroutine()})
		})
	}
	if err != nil {
		return err
	}
	return whole(path+".cpu.pprof", func(file *os.File) error {
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
