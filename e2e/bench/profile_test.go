package bench

import (
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/server"
)

// profiles is the directory for profiles of the services, which make bench PROFILE=1 sets; "" for none.
var profiles = flag.String("profiles", "", "leave profiles of the services in this directory")

const (
	profilesSetting = "ALMONER_PROFILES"
	writtenWithin   = time.Minute
)

// requestProfile makes a service (by the name of its files) write its memory figures and then its profiles. It returns
// the memory figures.
func requestProfile(t testing.TB, dir, service string, pid int) server.MemoryProfile {
	t.Helper()
	file := filepath.Join(dir, service+".memory.json")
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	var memory server.MemoryProfile
	if err := json.Unmarshal(await(t, file), &memory); err != nil {
		t.Fatal(err)
	}
	return memory
}

func await(t testing.TB, file string) []byte {
	t.Helper()
	for end := time.Now().Add(writtenWithin); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if content, err := os.ReadFile(file); err == nil {
			return content
		}
	}
	t.Fatalf("no %s within %s", filepath.Base(file), writtenWithin)
	return nil
}

// profileEach runs each load that can run for long at 32 connections, and stores its service's profiles.
func (r *report) profileEach(t *testing.T, loads []load, dir string) {
	t.Helper()
	if *profiles == "" {
		return
	}
	if err := os.MkdirAll(*profiles, 0o700); err != nil {
		t.Fatal(err)
	}
	r.line("\nProfiles of the services are in .almoner/profiles: `go tool pprof -top FILE`.")
	for _, l := range loads {
		service := map[bool]string{true: "resourceapi", false: "authserver"}[strings.HasPrefix(l.what, "list")]
		if l.at.name != ourselves || l.before != nil {
			continue
		}
		name := service + "-" + strings.NewReplacer(",", "", "'", "", " ", "-").Replace(l.what)
		requestProfile(t, dir, service, l.at.pids[0])
		l.run(t, 32, server.ProfileTime)
		for _, kind := range []string{".cpu.pprof", ".heap.pprof"} {
			from := filepath.Join(dir, service+kind)
			content := await(t, from)
			err := errors.Join(os.WriteFile(filepath.Join(*profiles, name+kind), content, 0o600), os.Remove(from))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}
