package localstore

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The oldest supported major versions.
const (
	oldestPostgres = 15
	oldestRedis    = 7
)

// ErrMissing reports that a server program is not installed. Package apt can install it.
var ErrMissing = errors.New("not installed")

// programs is a directory of server programs of one version.
type programs struct {
	dir       string
	major     int
	libraries []string // where their libraries are, if outside the system's path
}

func (p programs) path(name string) string { return filepath.Join(p.dir, name) }

// Tools returns the directories of the servers' client programs, of the versions that this package starts,
// and the environment that their libraries need.
func Tools(tools string) (folders, environ []string, err error) {
	postgres, err := findPostgres(tools, 0)
	if err != nil {
		return nil, nil, err
	}
	redis, err := findRedis(tools)
	if err != nil {
		return nil, nil, err
	}
	return []string{postgres.dir, redis.dir}, libraryPath(slices.Concat(postgres.libraries, redis.libraries)), nil
}

// FindPostgres returns an error that wraps ErrMissing if no supported PostgreSQL server is installed.
func FindPostgres(tools string) error {
	_, err := findPostgres(tools, 0)
	return err
}

// FindRedis is FindPostgres for Redis.
func FindRedis(tools string) error {
	_, err := findRedis(tools)
	return err
}

// findPostgres returns the newest supported version, or the given major version. Debian installs servers
// outside PATH.
func findPostgres(tools string, major int) (programs, error) {
	found := installed("postgres", tools, "/usr/lib/postgresql/*/bin/postgres")
	slices.SortStableFunc(found, func(a, b programs) int { return cmp.Compare(b.major, a.major) })
	for _, candidate := range found {
		if candidate.major >= oldestPostgres && (major == 0 || candidate.major == major) {
			return candidate, nil
		}
	}
	if major != 0 {
		return programs{}, fmt.Errorf("PostgreSQL %d: %w", major, ErrMissing)
	}
	return programs{}, fmt.Errorf("PostgreSQL %d or newer: %w", oldestPostgres, ErrMissing)
}

func findRedis(tools string) (programs, error) {
	for _, candidate := range installed("redis-server", tools, "/usr/bin/redis-server", "/usr/local/bin/redis-server") {
		if candidate.major >= oldestRedis {
			return candidate, nil
		}
	}
	return programs{}, fmt.Errorf("Redis %d or newer: %w", oldestRedis, ErrMissing)
}

// installed returns the programs of a name that the patterns match, in the system and in tools, and the one in PATH.
func installed(name, tools string, patterns ...string) []programs {
	roots := []string{"/"}
	if tools != "" {
		roots = append(roots, filepath.Join(tools, "root"))
	}
	var paths []string
	for _, root := range roots {
		for _, pattern := range patterns {
			matches, _ := filepath.Glob(filepath.Join(root, pattern)) // the one error is a malformed pattern
			paths = append(paths, matches...)
		}
	}
	if path, err := exec.LookPath(name); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		paths = append(paths, path)
	}
	var found []programs
	for _, path := range paths {
		p := programs{dir: filepath.Dir(path), libraries: privateLibraries(path, tools)}
		if p.major = majorVersion(path, p.libraries); p.major > 0 {
			found = append(found, p)
		}
	}
	return found
}

func privateLibraries(path, tools string) []string {
	if tools == "" {
		return nil
	}
	root := filepath.Join(tools, "root")
	if relative, err := filepath.Rel(root, path); err != nil || !filepath.IsLocal(relative) {
		return nil
	}
	libraries, _ := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu*"))
	more, _ := filepath.Glob(filepath.Join(root, "lib/*-linux-gnu*"))
	return append(libraries, more...)
}

// majorVersions caches major versions by path (string → int), because test processes start hundreds of servers.
var majorVersions sync.Map

// versionNumber matches the major version in "postgres (PostgreSQL) 15.18 (…)" or "Redis server v=7.0.15 …".
var versionNumber = regexp.MustCompile(`(?:\) |v=)(\d+)`)

// majorVersion returns the major version that a program reports (--version), or 0 if it reports none.
func majorVersion(path string, libraries []string) int {
	if known, ok := majorVersions.Load(path); ok {
		return known.(int)
	}
	command := exec.Command(path, "--version")
	command.Env = environment(libraries)
	out, err := command.Output()
	match := versionNumber.FindSubmatch(out)
	if err != nil || match == nil {
		return 0
	}
	major, _ := strconv.Atoi(string(match[1])) // only digits
	majorVersions.Store(path, major)
	return major
}

// dataVersion returns the major version that made a data directory, or 0 if there is none.
func dataVersion(dir string) (int, error) {
	content, err := os.ReadFile(filepath.Join(dir, "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	major, err := strconv.Atoi(string(regexp.MustCompile(`^\d+`).Find(content)))
	if err != nil {
		return 0, fmt.Errorf("%s/PG_VERSION contains no version", dir)
	}
	return major, nil
}

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
