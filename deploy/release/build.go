package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/almonerhq/almoner/shared/net/version"
)

// A build is a program for one architecture of Linux.
type build struct{ program, architecture string }

// builds returns what a release contains.
func builds() []build {
	var all []build
	for _, program := range programs() {
		for _, architecture := range []string{"amd64", "arm64"} {
			all = append(all, build{program, architecture})
		}
	}
	return all
}

// file returns the name of the program's file in a release.
func (b build) file() string {
	return fmt.Sprintf("%s-%s-linux-%s", b.program, version.Number, b.architecture)
}

// compile builds the program of the repository at root into a file. The same sources and Go version produce the same
// file on any machine and in any directory, since the file contains no path, time or build id. It needs no C compiler.
func (b build) compile(ctx context.Context, root, commit, file string) error {
	file, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags="+version.BuildTags,
		"-ldflags=-s -w -buildid= -X "+ours+"shared/net/version.commit="+commit, "-o", file, "./cmd/"+b.program)
	command.Dir = filepath.Join(root, b.program)
	command.Env = append(
		os.Environ(),
		"CGO_ENABLED=0",
		"GOOS=linux",
		"GOARCH="+b.architecture,
		"GOAMD64=v1",
		"GOARM64=v8.0",
		"GOWORK=off",
		"GOTOOLCHAIN=local",
		"GOFLAGS=-mod=readonly",
		"GOEXPERIMENT=",
		"GOFIPS140=off",
	)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s for %s: %w: %s", b.program, b.architecture, err, output)
	}
	return nil
}

// commitOf returns the commit of the repository. It returns an error if a file differs from the commit, because others
// must be able to reproduce a release from it.
func commitOf(ctx context.Context, root string) (string, error) {
	changed, err := git(ctx, root, "status", "--porcelain")
	if err != nil {
		return "", err
	}
	if changed != "" {
		return "", errors.New("files differ from the commit; commit or remove them first:\n" + changed)
	}
	return git(ctx, root, "rev-parse", "HEAD")
}

func git(ctx context.Context, root string, arguments ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", root}, arguments...)...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", arguments[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// checkVersion returns an error unless the sources have this version, which the programs print.
func checkVersion(number string) error {
	if number != version.Number {
		return fmt.Errorf(
			"VERSION is %q, but shared/net/version has %s: write the number there and into deploy/CHANGELOG.md first",
			number, version.Number,
		)
	}
	return nil
}

// isDated reports whether the changelog has a dated section for this version. Without one, the build is a trial.
func isDated(changelog, number string) bool {
	section := regexp.MustCompile(`(?m)^## \[` + regexp.QuoteMeta(number) + `\] - \d{4}-\d{2}-\d{2}$`)
	return section.MatchString(changelog)
}
