// Package version identifies the build of Almoner.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Number is the version in the format of https://semver.org. deploy/CHANGELOG.md describes the versions.
const Number = "0.1.0"

// BuildTags are the build tags of everything that is run or shipped, for go build -tags. They remove unused
// code, 2 MB of authserver: Go types as parameters of PostgreSQL's simple protocol, traces of gRPC calls, and
// HTTP/2, which only the gateway uses: the services use HTTP/1.1, as servers and as clients.
const BuildTags = "nopgxregisterdefaulttypes,grpcnotrace,nethttpomithttp2"

// commit is set by the linker if there is no repository, as in a container image:
// -ldflags "-X github.com/almonerhq/almoner/shared/net/version.commit=…".
var commit string

// Commit returns the commit that this program was built from, followed by "-dirty" if files had changed
// since, or "unknown".
func Commit() string {
	info, _ := debug.ReadBuildInfo() // nil if there is none
	return commitOf(commit, info)
}

func commitOf(stamped string, info *debug.BuildInfo) string {
	if stamped != "" {
		return stamped
	}
	var revision, dirty string
	if info != nil {
		for _, setting := range info.Settings {
			switch {
			case setting.Key == "vcs.revision":
				revision = setting.Value
			case setting.Key == "vcs.modified" && setting.Value == "true":
				dirty = "-dirty"
			}
		}
	}
	if revision == "" {
		return "unknown"
	}
	return revision + dirty
}

// Line returns the output of --version.
func Line(program string) string {
	return fmt.Sprintf("%s %s, commit %s, %s", program, Number, Commit(), runtime.Version())
}
