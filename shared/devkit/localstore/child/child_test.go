package child

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/devkit/await"
)

func shell(t *testing.T, script string) Spec {
	t.Helper()
	return Spec{
		Name: "script",
		Path: "/bin/sh",
		Args: []string{"-c", script},
		Env:  os.Environ(),
		Log:  filepath.Join(t.TempDir(), "log"),
	}
}

func TestStop_SendsPoliteSignalFirst(t *testing.T) {
	t.Parallel()
	const polite, deaf = `trap 'echo bye; exit 0' TERM`, `trap '' TERM`
	for name, c := range map[string]struct {
		trap   string
		pause  bool
		within time.Duration
		want   string
	}{
		"running":                  {polite, false, await.Long, "script ended: bye"},
		"paused":                   {polite, true, await.Long, "script ended: bye"},
		"paused, ignores a signal": {deaf, true, 100 * time.Millisecond, "killed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := shell(t, c.trap+`; echo ready; while :; do sleep 0.05; done`)
			child, err := Start(spec)
			must(t, err)
			waitForLog(t, spec.Log, "ready")
			if c.pause {
				must(t, child.Pause())
			}
			child.Stop(syscall.SIGTERM, c.within)
			if got := child.Outcome(); !strings.Contains(got, c.want) {
				t.Errorf("outcome: %s, want %s", got, c.want)
			}
		})
	}
}

func TestPause_StopsChildrenInOtherGroups(t *testing.T) {
	t.Parallel()
	spec := shell(t, `setsid sh -c 'while :; do date +%N; sleep 0.02; done' & echo ready; wait`)
	c, err := Start(spec)
	must(t, err)
	defer c.Kill()
	waitForLog(t, spec.Log, "ready")
	must(t, c.Pause())
	children := childrenOf(c.PID())
	if len(children) == 0 {
		t.Fatal("the script has no child")
	}
	for _, pid := range append(children, c.PID()) {
		await.True(t, "the process is stopped", func() bool {
			return string(statFields("/proc/" + strconv.Itoa(pid) + "/stat")[0]) == "T"
		})
	}
	before := size(t, spec.Log)
	c.Resume()
	await.True(t, "it writes again", func() bool { return size(t, spec.Log) > before })
}

func TestStart_ChildHasOwnProcessGroup(t *testing.T) {
	t.Parallel()
	c, err := Start(shell(t, "sleep 60"))
	must(t, err)
	defer c.Kill()
	if group, err := syscall.Getpgid(c.PID()); err != nil || group == syscall.Getpgrp() {
		t.Errorf("it is in our process group %d, %v", group, err)
	}
}

func TestRun_EndsWithContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := Run(ctx, shell(t, "sleep 60")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestChild_DiesWithItsParent runs this test binary as a parent, kills it with SIGKILL and looks for its
// child.
func TestChild_DiesWithItsParent(t *testing.T) {
	t.Parallel()
	if os.Getenv("ALMONER_TEST_PARENT") != "" {
		c, err := Start(Spec{Name: "sleeper", Path: "/bin/sleep", Args: []string{"300"}})
		must(t, err)
		_, _ = os.Stdout.WriteString("child " + strconv.Itoa(c.PID()) + "\n")
		<-c.Done()
		return
	}
	parent := exec.Command(os.Args[0], "-test.run=^TestChild_DiesWithItsParent$")
	parent.Env = append(os.Environ(), "ALMONER_TEST_PARENT=1")
	out, err := parent.StdoutPipe()
	must(t, err)
	must(t, parent.Start())
	pid := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "child "); ok {
			pid, _ = strconv.Atoi(text)
			break
		}
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), await.Long)
	defer cancel()
	if pid == 0 || !WaitGone(ctx, pid) {
		t.Errorf("child %d outlives its parent", pid)
	}
}

func waitForLog(t *testing.T, path, text string) {
	t.Helper()
	await.True(t, path+" contains "+text, func() bool {
		content, _ := os.ReadFile(path)
		return strings.Contains(string(content), text)
	})
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info.Size()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestCause_IsFirstLineThatNamesFailure(t *testing.T) {
	for output, want := range map[string]string{
		"": "",
		"creating subdirectories ... ok\n2026-11-23 FATAL:  could not write to file \"pg_wal/xlogtemp.7\": No space " +
			"left on device\n" +
			"child process exited with exit code 1\n" +
			"initdb: removing data directory \"/x/data.new\"\n": "2026-11-23 FATAL:  could not write to file " +
			"\"pg_wal/xlogtemp.7\": No space left on device",
		"LOG:  starting PostgreSQL\nLOG:  could not bind IPv4 address\nHINT:  wait\nFATAL:  could not create any " +
			"TCP/IP sockets\nLOG:  database system is shut down\n": "LOG:  could not bind IPv4 address",
		"panic: nil map\n\ngoroutine 1 [running]:\nmain.main()\nexit status 2\n": "panic: nil map",
		`{"level":"INFO","msg":"listens"}` + "\n" +
			`{"level":"ERROR","msg":"serve: address in use"}` + "\n" +
			`{"level":"INFO","msg":"stopped"}`: `{"level":"ERROR","msg":"serve: address in use"}`,
		`{"level":"WARN","msg":"connection refused"}` + "\n" +
			`{"level":"ERROR","msg":"request"}` + "\n" +
			`{"level":"INFO","msg":"stopped"}`: `{"level":"INFO","msg":"stopped"}`,
		"one\ntwo\n": "two",
		"error: an old one\n" + strings.Repeat("fine\n", 30): "fine",
	} {
		if got := Cause(output); got != want {
			t.Errorf("of %q: %q, want %q", output, got, want)
		}
	}
}

// The last line of a program that a signal ended does not say why it ended, unless it names a failure.
func TestOutcome_OfSignalQuotesFailureOnly(t *testing.T) {
	for script, want := range map[string]string{
		`echo 'ready'; kill -9 $$`:            "script ended with signal: killed",
		`echo 'fatal: no memory'; kill -9 $$`: "script ended with signal: killed: fatal: no memory",
		`echo first; echo 'ready'; exit 3`:    "script ended with exit status 3: ready",
	} {
		if err := Run(t.Context(), shell(t, script)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", script, err, want)
		}
	}
}

// The log of an earlier run does not count.
func TestOutcome_IgnoresEarlierRuns(t *testing.T) {
	spec := shell(t, `echo 'error: the disk is full'; echo 'clearing up'; exit 3`)
	must(t, os.WriteFile(spec.Log, []byte("error: of yesterday\n"), 0o600))
	err := Run(t.Context(), spec)
	if err == nil || err.Error() != "script ended with exit status 3: error: the disk is full" {
		t.Errorf("%v", err)
	}
}
