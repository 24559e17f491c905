package main

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"

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
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+b.architecture, "GOAMD64=v1",
		"GOARM64=v8.0", "GOWORK=off", "GOTOOLCHAIN=local", "GOFLAGS=-mod=readonly", "GOEXPERIMENT=", "GOFIPS140=off")
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
			number, version.Number)
	}
	return nil
}

// isDated reports whether the changelog has a dated section for this version. Without one, the build is a trial.
func isDated(changelog, number string) bool {
	section := regexp.MustCompile(`(?m)^## \[` + regexp.QuoteMeta(number) + `\] - \d{4}-\d{2}-\d{2}$`)
	return section.MatchString(changelog)
}

const ours = "github.com/almonerhq/almoner/"

// writeBill writes a program's bill of materials: the modules that the linker recorded, not those that go.mod requires.
// The same program always has the same bill: it contains no time, and its serial number is derived from the program.
func writeBill(out io.Writer, program string) error {
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("%s is not a Go program, or has no module information: %w", program, err)
	}
	digest := sha256.Sum256(content)
	main := component(info.Main.Path, version.Number, "")
	main.Type, main.Name = cyclonedx.ComponentTypeApplication, path.Base(info.Path)
	main.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(digest[:])}}

	components := []cyclonedx.Component{component("std", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, module := range info.Deps {
		components = append(components, componentOf(module))
	}
	refs := make([]string, len(components))
	for i, c := range components {
		refs[i] = c.BOMRef
	}
	slices.Sort(refs)
	bill := cyclonedx.NewBOM()
	bill.SerialNumber = "urn:uuid:" + uuid.NewSHA1(uuid.NameSpaceURL, digest[:]).String()
	bill.Metadata = &cyclonedx.Metadata{Component: &main}
	bill.Components = &components
	// The program does not record which module depends on which.
	bill.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	encoder := cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON)
	encoder.SetPretty(true)
	return encoder.EncodeVersion(bill, cyclonedx.SpecVersion1_6)
}

// componentOf returns the component of a module in the program; for a replaced module, the replacement.
func componentOf(module *debug.Module) cyclonedx.Component {
	if strings.HasPrefix(module.Path, ours) {
		return component(module.Path, version.Number, "") // replaced by the directory beside it
	}
	if module.Replace != nil {
		module = module.Replace
	}
	return component(module.Path, module.Version, module.Sum)
}

// component returns a module with its package URL (purl) and its hash in go.sum: SHA-256 of its files' hashes.
func component(module, number, sum string) cyclonedx.Component {
	address := "pkg:golang/" + module + "@" + number
	c := cyclonedx.Component{
		Type:       cyclonedx.ComponentTypeLibrary,
		BOMRef:     address,
		Name:       module,
		Version:    number,
		PackageURL: address,
	}
	if encoded, ok := strings.CutPrefix(sum, "h1:"); ok {
		if digest, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(digest)}}
		}
	}
	return c
}
