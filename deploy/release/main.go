// Command release writes releases and their documents: build VERSION writes programs, images, bills of materials,
// checksums and the files of deploy to .almoner/release/VERSION (make release); sbom PROGRAM writes the bill of
// materials of a built program to standard output (CycloneDX 1.6, JSON); licences rewrites deploy/LICENCES.md and
// deploy/LICENCES.txt (make generate).
//
// It makes images with go-containerregistry, the library of ko and crane, without a daemon or a network. ko is not
// used, because it would pull a base image.
//
// cyclonedx-gomod (1.10.0) cannot replace the first: in a program built as the images are, it names our module
// shared "../shared", at version "(devel)". go-licenses (2.0.1) cannot replace the second: its report has neither
// NOTICE files, which the Apache licence requires, nor PATENTS files, does not recognise MIT-0, and looks addresses
// up on the network.
package main

import (
	"bytes"
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
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/net/version"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 2 && arguments[0] == "sbom":
		return writeBill(os.Stdout, arguments[1])
	case len(arguments) == 2 && arguments[0] == "build":
		root, err := localstore.RepositoryRoot()
		if err != nil {
			return err
		}
		return writeRelease(context.Background(), root, arguments[1])
	case slices.Equal(arguments, []string{"licences"}):
		root, err := localstore.RepositoryRoot()
		if err != nil {
			return err
		}
		return writeLicences(root)
	}
	return errors.New("usage: release build VERSION | release sbom PROGRAM | release licences")
}

// sums is the file with the checksums of all others.
const sums = "SHA256SUMS"

// A release is what make release writes into a directory: programs, images, bills of materials, and the files of deploy
// that an installation uses.
type release struct {
	root   string
	commit string
	out    string
}

// writeRelease writes the release of the repository at root, which must have this version and no changes.
func writeRelease(ctx context.Context, root, number string) error {
	changelog, err := os.ReadFile(filepath.Join(root, "deploy", "CHANGELOG.md"))
	if err != nil {
		return err
	}
	if err := checkVersion(number); err != nil {
		return err
	}
	if !isDated(string(changelog), number) {
		fmt.Fprintf(os.Stderr, "this is a trial: deploy/CHANGELOG.md has no section [%s] with a date\n", number)
	}
	commit, err := commitOf(ctx, root)
	if err != nil {
		return err
	}
	out := filepath.Join(root, ".almoner", "release", number)
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	return release{root, commit, out}.write(ctx)
}

func (r release) write(ctx context.Context) error {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	files := map[string]string{}
	for _, b := range builds() {
		began := time.Now()
		files[b.file()] = filepath.Join(r.out, b.file())
		if err := b.compile(ctx, r.root, r.commit, files[b.file()]); err != nil {
			return err
		}
		var bill bytes.Buffer
		if err := writeBill(&bill, files[b.file()]); err != nil {
			return err
		}
		if err := os.WriteFile(files[b.file()]+".cdx.json", bill.Bytes(), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s (%s)\n", b.file(), time.Since(began).Round(time.Second))
	}
	licences, err := os.ReadFile(filepath.Join(r.root, "deploy", "LICENCES.txt"))
	if err != nil {
		return err
	}
	digests := map[string]string{}
	for _, program := range programs() {
		name := fmt.Sprintf("%s-%s-image.tar", program, version.Number)
		digest, err := writeImage(program, r.commit, files, licences, filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		digests[program] = digest
		fmt.Fprintln(os.Stderr, name, digest)
	}
	if err := r.writeDeploy(ctx, digests); err != nil {
		return err
	}
	return r.writeSums()
}

// writeDeploy writes the committed files of deploy that an installation uses, with the digests of the images in the
// kustomize base.
func (r release) writeDeploy(ctx context.Context, digests map[string]string) error {
	dir, err := os.MkdirTemp("", "almoner-deploy-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	archive, folder := filepath.Join(dir, "source.tar"), "almoner-"+version.Number
	arguments := []string{"archive", "--prefix=" + folder + "/", "--output=" + archive, "HEAD:deploy"}
	if _, err := git(ctx, r.root, append(arguments, shipped()...)...); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "tar", "-x", "-C", dir, "-f", archive).CombinedOutput(); err != nil {
		return fmt.Errorf("unpack: %w: %s", err, out)
	}
	if err := os.Remove(archive); err != nil {
		return err
	}
	if err := nameImages(filepath.Join(dir, folder, "kubernetes"), digests); err != nil {
		return err
	}
	return writeArchive(filepath.Join(r.out, fmt.Sprintf("almoner-deploy-%s.tar", version.Number)), os.DirFS(dir))
}

// shipped returns the files and folders of deploy that are in the archive.
func shipped() []string {
	return []string{
		"CHANGELOG.md", "LICENCES.md", "LICENCES.txt", "README.md", "SCALING.md", "SETTINGS.md", "UPGRADING.md",
		"citus", "compose/redis-authserver.acl", "compose/redis-resourceapi.acl", "compose/roles.sql", "docs",
		"gateway/Caddyfile", "gateway/nginx.conf", "kubernetes", "observability", "runbooks", "setup.sh", "systemd",
	}
}

// nameImages adds the digests of the images to the base, and removes the tags of the example: an overlay names only the
// registry.
func nameImages(kubernetes string, digests map[string]string) error {
	var images strings.Builder
	images.WriteString("images:\n")
	for _, program := range programs() {
		if digests[program] == "" {
			return errors.New("there is no image of " + program)
		}
		fmt.Fprintf(&images, "  - name: almoner/%s\n    digest: %s\n", program, digests[program])
	}
	base := filepath.Join(kubernetes, "base", "kustomization.yaml")
	content, err := os.ReadFile(base)
	if err != nil {
		return err
	}
	if bytes.Contains(content, []byte("\nimages:")) {
		return errors.New("the base names images already")
	}
	if err := os.WriteFile(base, append(content, images.String()...), 0o644); err != nil {
		return err
	}
	example := filepath.Join(kubernetes, "example", "kustomization.yaml")
	if content, err = os.ReadFile(example); err != nil {
		return err
	}
	tag := []byte("    newTag: " + version.Number + "\n")
	if bytes.Count(content, tag) != len(programs()) {
		return errors.New("the example does not name the tag " + version.Number + " of each image")
	}
	return os.WriteFile(example, bytes.ReplaceAll(content, tag, nil), 0o644)
}

// writeSums writes the checksums of all files, in the format of sha256sum.
func (r release) writeSums() error {
	entries, err := os.ReadDir(r.out) // sorted by name
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(r.out, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(content), entry.Name())
	}
	return os.WriteFile(filepath.Join(r.out, sums), []byte(lines.String()), 0o644)
}

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
