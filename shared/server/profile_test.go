package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/almonerhq/almoner/shared/devkit/await"
)

const dirVariable = "ALMONER_TEST_PROFILES"

func TestMain(m *testing.M) {
	dir, child := os.LookupEnv(dirVariable)
	if !child {
		os.Exit(m.Run())
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	ProfileOnSignal(ctx, dir, "child", slog.New(slog.DiscardHandler))
	_, _ = os.Stdout.WriteString("ready\n")
	_, _ = io.Copy(io.Discard, os.Stdin) // ends with the test
}

// startChild starts this test binary as a process to profile.
func startChild(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), dirVariable+"="+dir)
	_, inErr := child.StdinPipe()
	out, err := child.StdoutPipe()
	if err = errors.Join(err, inErr); err == nil {
		err = child.Start()
	}
	must(t, err)
	_, err = out.Read(make([]byte, len("ready\n")))
	must(t, err)
	return child
}

func TestProfileOnSignal_WritesProfiles(t *testing.T) {
	dir := t.TempDir()
	child := startChild(t, dir)
	t.Cleanup(func() { _, _ = child.Process.Kill(), child.Wait() })
	must(t, child.Process.Signal(syscall.SIGUSR1))
	for _, name := range []string{"child.memory.json", "child.heap.pprof", "child.cpu.pprof"} {
		if name == "child.cpu.pprof" { // the end of the process cuts it short
			must(t, child.Process.Signal(syscall.SIGTERM))
		}
		var content []byte
		await.NoError(t, func() (err error) {
			content, err = os.ReadFile(filepath.Join(dir, name))
			return err
		})
		if filepath.Ext(name) == ".pprof" {
			if !bytes.HasPrefix(content, []byte{0x1f, 0x8b}) { // profiles are gzip files
				t.Errorf("%s is not a profile", name)
			}
			continue
		}
		var memory MemoryProfile
		if err := json.Unmarshal(content, &memory); err != nil || memory.HeapAlloc == 0 ||
			memory.HeapInuse < memory.HeapAlloc || memory.Sys < memory.HeapInuse {
			t.Errorf("%s %v", content, err)
		}
	}
}
