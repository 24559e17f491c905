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

func TestRun_ReportsLastLine(t *testing.T) {
	t.Parallel()
	err := Run(t.Context(), shell(t, "echo first; echo the reason; exit 3"))
	if err == nil || !strings.Contains(err.Error(), "the reason") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v", err)
	}
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
