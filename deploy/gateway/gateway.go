// Package gateway answers: what stands before the services of a deployment, and is the program for it here?
//
// The two configurations do the same; which one is used is a matter of taste. e2e/gateway tries both.
package gateway

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// The configurations, as they are delivered.
var (
	//go:embed Caddyfile
	Caddyfile string
	//go:embed nginx.conf
	Nginx string
)

// Packages are the Debian packages with the programs, which have the same names.
func Packages() []string { return []string{"caddy", "nginx"} }

// ErrMissing says that the program is not here, or is older than its configuration.
var ErrMissing = errors.New("is not installed, or too old")

// oldest says how each program tells its version, and the first one, as major and minor, that knows everything in its
// configuration.
var oldest = map[string]struct {
	ask          string
	major, minor int
}{
	"caddy": {"version", 2, 6},
	"nginx": {"-v", 1, 22},
}

// A Program is installed, or was unpacked privately.
type Program struct {
	Path        string
	Environment []string // what it needs to find its libraries
}

// Find finds caddy or nginx: installed, which for nginx may be outside PATH, or below the directory where packages are
// unpacked privately ("" for none). The error is ErrMissing if there is none that is new enough.
func Find(name, tools string) (Program, error) {
	var candidates []Program
	for _, place := range []string{name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(place); err == nil {
			candidates = append(candidates, Program{Path: path})
		}
	}
	if tools != "" {
		libraries, _ := filepath.Glob(
			filepath.Join(tools, "root/usr/lib/*-linux-gnu*"),
		) // the one error is a malformed pattern
		for _, dir := range []string{"usr/bin", "usr/sbin"} {
			candidates = append(
				candidates,
				Program{
					Path:        filepath.Join(tools, "root", dir, name),
					Environment: []string{"LD_LIBRARY_PATH=" + strings.Join(libraries, ":")},
				},
			)
		}
	}
	for _, candidate := range candidates {
		if candidate.isNewEnough(name) {
			return candidate, nil
		}
	}
	return Program{}, fmt.Errorf("%s %d.%d %w", name, oldest[name].major, oldest[name].minor, ErrMissing)
}

// isNewEnough reads "nginx version: nginx/1.22.1" and "v2.10.2 h1:…".
func (p Program) isNewEnough(name string) bool {
	command := exec.Command(p.Path, oldest[name].ask)
	command.Env = append(os.Environ(), p.Environment...)
	out, err := command.CombinedOutput()
	match := regexp.MustCompile(`(\d+)\.(\d+)`).FindSubmatch(out)
	if err != nil || match == nil {
		return false
	}
	major, _ := strconv.Atoi(string(match[1])) // digits alone
	minor, _ := strconv.Atoi(string(match[2]))
	return major > oldest[name].major || major == oldest[name].major && minor >= oldest[name].minor
}
