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
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

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
		if err := r.writeBillOf(files[b.file()]); err != nil {
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

func (r release) writeBillOf(program string) error {
	var bill bytes.Buffer
	if err := writeBill(&bill, program); err != nil {
		return err
	}
	return os.WriteFile(program+".cdx.json", bill.Bytes(), 0o644)
}

// writeDeploy writes the committed files of deploy that an installation uses, with the digests of the images in the
// kustomize base.
func (r release) writeDeploy(ctx context.Context, digests map[string]string) error {
	dir, err := os.MkdirTemp("", "almoner-deploy-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	archive := filepath.Join(dir, "source.tar")
	arguments := []string{"archive", "--output", archive, "HEAD"}
	for _, name := range shipped() {
		arguments = append(arguments, "deploy/"+name)
	}
	if _, err := git(ctx, r.root, arguments...); err != nil {
		return err
	}
	into := filepath.Join(dir, "almoner-"+version.Number)
	if err := os.Mkdir(into, 0o755); err != nil {
		return err
	}
	unpack := exec.CommandContext(ctx, "tar", "-x", "-C", into, "--strip-components=1", "-f", archive)
	if out, err := unpack.CombinedOutput(); err != nil {
		return fmt.Errorf("unpack: %w: %s", err, out)
	}
	if err := os.Remove(archive); err != nil {
		return err
	}
	if err := nameImages(filepath.Join(into, "kubernetes"), digests); err != nil {
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
