// Package gateway holds the reverse proxy configurations of a deployment and finds their programs.
//
// The two configurations are equivalent. e2e/gateway tests both.
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

// These are the configurations as delivered.
var (
	//go:embed Caddyfile
	Caddyfile string
	//go:embed nginx.conf
	Nginx string
)

// Packages returns the Debian packages of the programs, which have the same names.
func Packages() []string { return []string{"caddy", "nginx"} }

// ErrMissing means that the program is not installed, or is older than its configuration needs.
var ErrMissing = errors.New("is not installed, or too old")

// oldest holds how each program prints its version, and the first version, as major and minor, that supports its
// configuration.
var oldest = map[string]struct {
	ask          string
	major, minor int
}{
	"caddy": {"version", 2, 6},
	"nginx": {"-v", 1, 22},
}

// A Program is installed or privately unpacked.
type Program struct {
	Path        string
	Environment []string // variables that it needs to find its libraries
}

// Find returns caddy or nginx: installed, which for nginx may be outside PATH, or below the directory of privately
// unpacked packages ("" for none). The error is ErrMissing if none is new enough.
func Find(name, tools string) (Program, error) {
	var candidates []Program
	for _, place := range []string{name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(place); err == nil {
			candidates = append(candidates, Program{Path: path})
		}
	}
	if tools != "" {
		// Glob fails only for a malformed pattern.
		libraries, _ := filepath.Glob(filepath.Join(tools, "root/usr/lib/*-linux-gnu*"))
		for _, dir := range []string{"usr/bin", "usr/sbin"} {
			candidates = append(candidates, Program{
				Path:        filepath.Join(tools, "root", dir, name),
				Environment: []string{"LD_LIBRARY_PATH=" + strings.Join(libraries, ":")},
			})
		}
	}
	for _, candidate := range candidates {
		if candidate.isNewEnough(name) {
			return candidate, nil
		}
	}
	return Program{}, fmt.Errorf("%s %d.%d %w", name, oldest[name].major, oldest[name].minor, ErrMissing)
}

// isNewEnough parses "nginx version: nginx/1.22.1" and "v2.10.2 h1:…".
func (p Program) isNewEnough(name string) bool {
	command := exec.Command(p.Path, oldest[name].ask)
	command.Env = append(os.Environ(), p.Environment...)
	out, err := command.CombinedOutput()
	match := regexp.MustCompile(`(\d+)\.(\d+)`).FindSubmatch(out)
	if err != nil || match == nil {
		return false
	}
	major, _ := strconv.Atoi(string(match[1])) // digits only
	minor, _ := strconv.Atoi(string(match[2]))
	return major > oldest[name].major || major == oldest[name].major && minor >= oldest[name].minor
}
