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

// ErrMissing says that the program is not here.
var ErrMissing = errors.New("is not installed")

// A Program is installed, or was unpacked privately.
type Program struct {
	Path        string
	Environment []string // what it needs to find its libraries
}

// Find finds caddy or nginx: installed, which for nginx may be outside PATH, or below the directory where packages are unpacked privately ("" for
// none). The error is ErrMissing if it is nowhere.
func Find(name, tools string) (Program, error) {
	for _, candidate := range []string{name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(candidate); err == nil {
			return Program{Path: path}, nil
		}
	}
	for _, dir := range []string{"usr/bin", "usr/sbin"} {
		path := filepath.Join(tools, "root", dir, name)
		if _, err := os.Stat(path); tools == "" || err != nil {
			continue
		}
		libraries, _ := filepath.Glob(filepath.Join(tools, "root/usr/lib/*-linux-gnu*")) // the one error is a malformed pattern
		return Program{Path: path, Environment: []string{"LD_LIBRARY_PATH=" + strings.Join(libraries, ":")}}, nil
	}
	return Program{}, fmt.Errorf("%s %w", name, ErrMissing)
}
