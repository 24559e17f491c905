package version

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestCommit_PrefersStampedOverRepository(t *testing.T) {
	built := func(settings ...debug.BuildSetting) *debug.BuildInfo { return &debug.BuildInfo{Settings: settings} }
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "abc123"}
	for _, c := range []struct {
		stamped string
		info    *debug.BuildInfo
		want    string
	}{
		{"", nil, "unknown"},
		{"", built(), "unknown"},
		{"", built(revision), "abc123"},
		{"", built(revision, debug.BuildSetting{Key: "vcs.modified", Value: "false"}), "abc123"},
		{"", built(revision, debug.BuildSetting{Key: "vcs.modified", Value: "true"}), "abc123-dirty"},
		{"def456", built(revision), "def456"},
		{"def456", nil, "def456"},
	} {
		if got := commitOf(c.stamped, c.info); got != c.want {
			t.Errorf("%q %v: %q, want %q", c.stamped, c.info, got, c.want)
		}
	}
}

func TestLine_NamesProgramVersionCommitAndGo(t *testing.T) {
	line := Line("authserver")
	for _, want := range []string{"authserver " + Number + ", commit ", ", go1."} {
		if !strings.Contains(line, want) {
			t.Errorf("%q lacks %q", line, want)
		}
	}
}
