package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/net/version"
)

// permissive returns the licences that may be shipped without a decision: none of them affects our own sources. MPL-2.0
// requires that its own files stay available. They are, unchanged, where the table says.
func permissive() []string {
	return []string{
		"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "GNU-All-permissive-Copying-License", "ISC", "MIT", "MIT-0",
		"MPL-2.0",
	}
}

func TestLicences_MatchLinkedModules(t *testing.T) {
	t.Parallel()
	root, err := localstore.RepositoryRoot()
	must(t, err)
	table, texts, err := licences(root)
	must(t, err)
	for name, want := range map[string][]byte{"LICENCES.md": table, "LICENCES.txt": texts} {
		have, err := os.ReadFile(filepath.Join(root, "deploy", name))
		if err != nil || !bytes.Equal(have, want) {
			t.Errorf("deploy/%s does not match the linked modules: run make generate (%v)", name, err)
		}
	}
	licence := "(" + strings.Join(permissive(), "|") + ")"
	allowed := regexp.MustCompile(`^\| \S+ \| \S+ \| ` + licence + `(, ` + licence + `)* \| \S.* \|$`)
	rows := 0
	for line := range strings.Lines(string(table)) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "| ") ||
			line == "| module | version | licence | in |" {
			continue
		}
		if rows++; !allowed.MatchString(line) {
			t.Errorf("the licence is not allowed: %s", line)
		}
	}
	if rows < 50 {
		t.Errorf("%d modules", rows)
	}
}

func TestClassify_UnknownLicenceIsAnError(t *testing.T) {
	t.Parallel()
	stranger := &module{
		path:    "example.org/stranger",
		version: "v1.0.0",
		files:   map[string]string{"LICENSE": "Do as I say.\n"},
	}
	if err := classify([]*module{stranger}); err == nil || !strings.Contains(err.Error(), stranger.path) {
		t.Error(err)
	}
	if err := classify([]*module{{path: stranger.path, version: "v1.0.0"}}); err == nil {
		t.Error("a module without a licence is accepted")
	}
}

// TestBill_ListsLinkedModules compares each program's bill with the output of `go version -m`.
func TestBill_ListsLinkedModules(t *testing.T) {
	t.Parallel()
	for _, name := range programs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			billIsOf(t, compiled(t, name))
		})
	}
}

func billIsOf(t *testing.T, program string) {
	t.Helper()
	found, err := exec.CommandContext(t.Context(), "go", "version", "-m", program).Output()
	must(t, err)
	want := map[string]bool{}
	for _, line := range regexp.MustCompile(`(?m)^\tdep\t(\S+)\t(\S+)`).FindAllStringSubmatch(string(found), -1) {
		if strings.HasPrefix(line[1], ours) {
			line[2] = version.Number
		}
		want["pkg:golang/"+line[1]+"@"+line[2]] = true
	}
	var written, again bytes.Buffer
	must(t, writeBill(&written, program))
	if err := writeBill(&again, program); err != nil || again.String() != written.String() {
		t.Errorf("the bill of the same program differs, %v", err)
	}
	var bill cyclonedx.BOM
	must(t, cyclonedx.NewBOMDecoder(&written, cyclonedx.BOMFileFormatJSON).Decode(&bill))
	listed, names := map[string]cyclonedx.Component{}, map[string]bool{}
	for _, c := range *bill.Components {
		listed[c.PackageURL], names[c.Name] = c, true
	}
	if len(listed) <= 50 || !names["github.com/jackc/pgx/v5"] {
		t.Errorf("%d components, of which pgx: %v", len(listed), names["github.com/jackc/pgx/v5"])
	}
	for address := range want {
		c, ok := listed[address]
		if !ok || (c.Hashes == nil && !strings.Contains(address, ours)) {
			t.Errorf("%s is not listed or has no hash", address)
		}
		delete(listed, address)
	}
	for address := range listed {
		if !strings.HasPrefix(address, "pkg:golang/std@1.") {
			t.Errorf("%s is listed but not in the program", address)
		}
	}
	about := bill.Metadata.Component
	if len(listed) != 1 || bill.SpecVersion != cyclonedx.SpecVersion1_6 || about.Version != version.Number ||
		filepath.Base(program) != (build{about.Name, "amd64"}).file() {
		t.Errorf("%d others, %+v", len(listed), about)
	}
}

func TestWriteBill_RefusesOtherFiles(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"main.go", "nothing"} {
		var out bytes.Buffer
		if err := writeBill(&out, path); err == nil || out.Len() > 0 {
			t.Errorf("%s: %v", path, err)
		}
	}
	if run([]string{"sbom"}) == nil || run(nil) == nil {
		t.Error("a missing command is accepted")
	}
}

func TestChangelog_NamesTheVersion(t *testing.T) {
	t.Parallel()
	changes, err := os.ReadFile("../CHANGELOG.md")
	if err != nil || !strings.Contains(string(changes), " "+version.Number) &&
		!strings.Contains(string(changes), "["+version.Number+"]") {
		t.Errorf("CHANGELOG.md does not mention %s, %v", version.Number, err)
	}
	if !strings.Contains(string(changes), "\n## [Unreleased]\n") {
		t.Error("CHANGELOG.md has no section [Unreleased]")
	}
}

const someCommit = "0123456789abcdef0123456789abcdef01234567"

// compiled returns a program that is built once for all tests of the process, as for a release.
func compiled(t *testing.T, program string) string {
	t.Helper()
	made, _ := builtPrograms.LoadOrStore(program, sync.OnceValues(func() (string, error) {
		dir, err := localstore.ProcessDir("almoner-release-")
		if err != nil {
			return "", err
		}
		root, err := localstore.RepositoryRoot()
		if err != nil {
			return "", err
		}
		b := build{program, "amd64"}
		file := filepath.Join(dir, b.file())
		return file, b.compile(context.Background(), root, someCommit, file)
	}))
	file, err := made.(func() (string, error))()
	must(t, err)
	return file
}

var builtPrograms sync.Map // name → func() (string, error)

// TestBuild_IsReproducible builds one program from a copy of the sources in another directory too.
func TestBuild_IsReproducible(t *testing.T) {
	t.Parallel()
	root, err := localstore.RepositoryRoot()
	must(t, err)
	b, dir := build{"resourceapi", "amd64"}, t.TempDir()
	for _, module := range []string{"shared", b.program} {
		must(t, os.CopyFS(filepath.Join(dir, module), os.DirFS(filepath.Join(root, module))))
	}
	elsewhere := filepath.Join(dir, b.file())
	must(t, b.compile(t.Context(), dir, someCommit, elsewhere))
	here := compiled(t, b.program)
	if sumOf(t, here) != sumOf(t, elsewhere) {
		t.Error("the program differs when it is built in another directory")
	}
	isStatic(t, here)
}

// TestImage_IsReproducible writes an image twice. A small file is in place of the program.
func TestImage_IsReproducible(t *testing.T) {
	t.Parallel()
	b := build{"resourceapi", "amd64"}
	var digests, archives [2]string
	for i, mode := range []os.FileMode{0o600, 0o755} {
		file, archive := filepath.Join(t.TempDir(), "program"), filepath.Join(t.TempDir(), "image.tar")
		must(t, os.WriteFile(file, []byte("a program"), mode))
		made := time.Unix(int64(1e9*(i+1)), 0)
		must(t, os.Chtimes(file, made, made))
		files := map[string]string{b.file(): file, build{b.program, "arm64"}.file(): file}
		var err error
		digests[i], err = writeImage(b.program, someCommit, files, []byte("licences"), archive)
		must(t, err)
		archives[i] = sumOf(t, archive)
		imageHolds(t, archive, digests[i], b)
	}
	if digests[0] != digests[1] || archives[0] != archives[1] {
		t.Errorf("images differ: digests %q, archives %q", digests, archives)
	}
}

func sumOf(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	must(t, err)
	return fmt.Sprintf("%x", sha256.Sum256(content))
}

func isStatic(t *testing.T, file string) {
	t.Helper()
	program, err := elf.Open(file)
	must(t, err)
	defer func() { _ = program.Close() }()
	libraries, err := program.ImportedLibraries()
	if err != nil || len(libraries) > 0 || program.Section(".interp") != nil {
		t.Errorf("the program is not static: %q %v", libraries, err)
	}
	if id := program.Section(".note.go.buildid"); id != nil {
		if content, err := id.Data(); err != nil || bytes.Count(content, []byte("/")) > 0 {
			t.Errorf("the program has a build id: %q %v", content, err)
		}
	}
	out, err := exec.CommandContext(t.Context(), file, "--version").Output()
	if err != nil || !strings.Contains(string(out), version.Number+", commit "+someCommit) {
		t.Errorf("%s %v", out, err)
	}
}

// unpacked unpacks an archive.
func unpacked(t *testing.T, archive string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	unpack := exec.CommandContext(t.Context(), "tar", "-x", "-C", dir, "-f", archive)
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// imageHolds unpacks an OCI archive, and checks the image for amd64 in it.
func imageHolds(t *testing.T, archive, digest string, b build) {
	t.Helper()
	index, err := layout.ImageIndexFromPath(unpacked(t, archive))
	must(t, err)
	top, err := index.IndexManifest()
	if err != nil || len(top.Manifests) != 1 || top.Manifests[0].Digest.String() != digest {
		t.Fatalf("%+v %v, want %s", top, err, digest)
	}
	several, err := index.ImageIndex(top.Manifests[0].Digest)
	must(t, err)
	manifest, err := several.IndexManifest()
	if err != nil || len(manifest.Manifests) != 2 {
		t.Fatalf("%+v %v", manifest, err)
	}
	image, err := several.Image(manifest.Manifests[0].Digest)
	must(t, err)
	config, err := image.ConfigFile()
	must(t, err)
	if !config.Created.IsZero() || config.Architecture != b.architecture || config.Config.User != user ||
		config.Config.Entrypoint[0] != "/"+b.program {
		t.Errorf("%+v", config)
	}
	names := namesIn(t, image)
	for name, mode := range map[string]int64{
		b.program:                           0o755,
		"LICENCES.txt":                      0o644,
		"etc/ssl/certs/ca-certificates.crt": 0o644,
		"etc/":                              0o755,
	} {
		if names[name] != mode {
			t.Errorf("%s has mode %o", name, names[name])
		}
	}
	if bytes.Count(certificates(), []byte("BEGIN CERTIFICATE")) < 100 {
		t.Error("there are few certificates")
	}
}

// namesIn returns the modes of all files and directories of an image.
func namesIn(t *testing.T, image v1.Image) map[string]int64 {
	t.Helper()
	modes := map[string]int64{}
	layers, err := image.Layers()
	must(t, err)
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		must(t, err)
		for reader := tar.NewReader(content); ; {
			header, err := reader.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			must(t, err)
			modes[header.Name] = header.Mode
			if header.ModTime.Unix() != 0 || header.Uid != 0 || header.Uname != "" {
				t.Errorf("%s depends on the machine: %+v", header.Name, header)
			}
		}
	}
	return modes
}

// TestRelease_SumsMatchAndBaseNamesImages writes what a release has besides programs and images, and checks the sums
// with sha256sum.
func TestRelease_SumsMatchAndBaseNamesImages(t *testing.T) {
	t.Parallel()
	root, err := localstore.RepositoryRoot()
	must(t, err)
	r := release{root, someCommit, t.TempDir()}
	digest := "sha256:" + strings.Repeat("a", 64)
	if err := r.writeDeploy(t.Context(), map[string]string{"authserver": digest}); err == nil {
		t.Error("an image is missing")
	}
	must(t, r.writeDeploy(t.Context(), map[string]string{"authserver": digest, "resourceapi": digest}))
	must(t, r.writeSums())
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", sums)
	check.Dir = r.out
	if out, err := check.CombinedOutput(); err != nil || !strings.Contains(string(out), "almoner-deploy") {
		t.Errorf("%v: %s", err, out)
	}
	dir := unpacked(t, filepath.Join(r.out, "almoner-deploy-"+version.Number+".tar"))
	top := filepath.Join(dir, "almoner-"+version.Number)
	base, err := os.ReadFile(filepath.Join(top, "kubernetes", "base", "kustomization.yaml"))
	if err != nil || strings.Count(string(base), "    digest: "+digest+"\n") != 2 {
		t.Errorf("%s %v", base, err)
	}
	example, err := os.ReadFile(filepath.Join(top, "kubernetes", "example", "kustomization.yaml"))
	if err != nil || strings.Contains(string(example), "newTag") {
		t.Errorf("%s %v", example, err)
	}
	if _, err := os.Stat(filepath.Join(top, "systemd", "authserver@.service")); err != nil {
		t.Error(err)
	}
}

func TestCheckVersion_WantsNumberOfSources(t *testing.T) {
	t.Parallel()
	if err := checkVersion(version.Number); err != nil {
		t.Error(err)
	}
	for _, number := range []string{"9.9.9", "", "v" + version.Number} {
		if checkVersion(number) == nil {
			t.Errorf("%q is accepted", number)
		}
	}
	if !isDated("\n## [1.2.3] - 2026-01-31\n", "1.2.3") || isDated("\n## [1.2.3]\n", "1.2.3") {
		t.Error("the date of a section is not recognised")
	}
}

func TestBuilds_CoverBothProgramsAndArchitectures(t *testing.T) {
	t.Parallel()
	if len(builds()) != 4 {
		t.Errorf("%d builds", len(builds()))
	}
	for _, b := range builds() {
		if ports[b.program] == "" {
			t.Errorf("%s has no port", b.program)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
