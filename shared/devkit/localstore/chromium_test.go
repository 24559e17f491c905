package localstore

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestWithoutPriority_RemovesCapability(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("setpriv"); err != nil || os.Geteuid() != 0 {
		t.Skip("only root can raise a priority, and only setpriv prevents it")
	}
	command := exec.CommandContext(t.Context(), "nice", "-n", "-5", "nice")
	WithoutPriority(command)
	out, err := command.CombinedOutput()
	if err != nil || strings.Contains(string(out), "\n-") || !strings.Contains(string(out), "\n") {
		t.Errorf("%q %v", out, err)
	}
}

func TestFindChromium_PrefersHeadless(t *testing.T) {
	path, tools := t.TempDir(), t.TempDir()
	t.Setenv("PATH", path)
	t.Setenv(ChromiumVariable, "")
	add := func(file string) string {
		t.Helper()
		must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(t, os.WriteFile(file, []byte("#!/bin/sh\n"), 0o755))
		return file
	}
	want := ""
	wants := func(what string) {
		t.Helper()
		if got := FindChromium(tools); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	wants("none")
	add(filepath.Join(tools, "root/usr/lib/chromium/chromium"))
	want = filepath.Join(tools, "chromium")
	wants("unpacked")
	want = add(filepath.Join(path, "chromium"))
	wants("installed")
	add(filepath.Join(tools, "root/usr/lib/chromium", HeadlessChromium))
	want = filepath.Join(tools, HeadlessChromium)
	wants("headless, unpacked")
	want = add(filepath.Join(path, HeadlessChromium))
	wants("headless, installed")
	want = "/opt/browser"
	t.Setenv(ChromiumVariable, want)
	wants("named")
}
