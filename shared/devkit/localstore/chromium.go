package localstore

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// ChromiumVariable names the Chromium executable of the tests. If it is not set, FindChromium looks for one.
const ChromiumVariable = "ALMONER_TEST_CHROMIUM"

// HeadlessChromium is the Debian package of Chromium without a window. It takes a third less processor time than
// Chromium.
const HeadlessChromium = "chromium-headless-shell"

// FindChromium returns the path of a Chromium: the one that ChromiumVariable names, one in PATH, or one that was
// unpacked in tools. It returns "" if there is none, or if one in tools cannot be started.
func FindChromium(tools string) string {
	if path := os.Getenv(ChromiumVariable); path != "" {
		return path
	}
	for _, name := range []string{
		HeadlessChromium,
		"chromium",
		"chromium-browser",
		"google-chrome",
		"google-chrome-stable",
	} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
		if path := unpacked(tools, name); path != "" {
			return path
		}
	}
	return ""
}

// WithoutPriority changes the command of a Chromium that root starts: it may not raise the priority of its threads.
// Otherwise drawing pages takes the processors from the services and stores under test, which then miss their time
// limits. Without the program setpriv (util-linux), it changes nothing.
func WithoutPriority(command *exec.Cmd) {
	setpriv, err := exec.LookPath("setpriv")
	if err != nil || os.Geteuid() != 0 {
		return
	}
	command.Args = slices.Concat([]string{setpriv, "--bounding-set=-sys_nice", command.Path}, command.Args[1:])
	command.Path = setpriv
}

// unpacked returns the path of a script that starts a Chromium which was unpacked in tools. It sets the path of the
// libraries.
func unpacked(tools, name string) string {
	program := filepath.Join(tools, "root/usr/lib/chromium", name)
	if _, err := os.Stat(program); err != nil {
		return ""
	}
	libraries, _ := filepath.Glob(filepath.Join(tools, "root/usr/lib/*-linux-gnu*"))
	starter := filepath.Join(tools, name)
	script := fmt.Sprintf("#!/bin/sh\nLD_LIBRARY_PATH='%s' exec '%s' \"$@\"\n", strings.Join(libraries, ":"), program)
	if err := os.WriteFile(starter, []byte(script), 0o755); err != nil {
		return ""
	}
	return starter
}
