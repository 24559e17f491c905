// Package version answers: which build of Almoner is this?
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Number is the version in the sense of https://semver.org. deploy/CHANGELOG.md says what is in it.
const Number = "0.1.0"

// BuildTags are the build tags of everything that is run or shipped, as for go build -tags. They leave out what is
// never used, 2 MB of authserver: Go types as parameters of PostgreSQL's simple protocol, which we do not speak; traces
// of gRPC calls, which we do not make; HTTP/2, which is the gateway's business: the services speak HTTP/1.1, as servers
// and as clients.
const BuildTags = "nopgxregisterdefaulttypes,grpcnotrace,nethttpomithttp2"

// commit is set by the linker where there is no repository to ask, as in a container image:
// -ldflags "-X github.com/almonerhq/almoner/shared/version.commit=…".
var commit string

// Commit is the commit that this program was built from, with "-dirty" after it if files had changed since, or
// "unknown".
func Commit() string {
	info, _ := debug.ReadBuildInfo() // nil where there is none
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

// Line is what a program answers to --version.
func Line(program string) string {
	return fmt.Sprintf("%s %s, commit %s, %s", program, Number, Commit(), runtime.Version())
}
