package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing/fstest"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/licenseclassifier/v2/assets"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/almonerhq/almoner/shared/net/version"
)

// user is the user of the images, as in deploy/image/Dockerfile.
const user = "65532:65532"

// ports are the ports on which the programs listen by default.
var ports = map[string]string{"authserver": "8081/tcp", "resourceapi": "8082/tcp"}

// writeImage writes the image of a program for all architectures as an OCI archive: a tar file of an OCI image layout.
// It returns the digest of the image's index, which is the digest that a registry will have.
func writeImage(program, commit string, files map[string]string, licences []byte, archive string) (string, error) {
	index := v1.ImageIndex(mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	for _, b := range builds() {
		if b.program != program {
			continue
		}
		image, err := imageOf(b, commit, files[b.file()], licences)
		if err != nil {
			return "", err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: b.architecture}},
		})
	}
	digest, err := index.Digest()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "almoner-image-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	written, err := layout.Write(dir, empty.Index)
	if err != nil {
		return "", err
	}
	name := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": version.Number})
	if err := written.AppendIndex(index, name); err != nil {
		return "", err
	}
	return digest.String(), writeArchive(archive, os.DirFS(dir))
}

// imageOf returns the image of one program, without a time: certificates and licences in one layer, the program in
// another.
func imageOf(b build, commit, file string, licences []byte) (v1.Image, error) {
	program, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	config := &v1.ConfigFile{
		OS:           "linux",
		Architecture: b.architecture,
		RootFS:       v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:         user,
			Entrypoint:   []string{"/" + b.program},
			Cmd:          []string{"serve"},
			ExposedPorts: map[string]struct{}{ports[b.program]: {}},
			Healthcheck: &v1.HealthConfig{
				Test:        []string{"CMD", "/" + b.program, "healthcheck"},
				Interval:    10 * time.Second,
				Timeout:     5 * time.Second,
				StartPeriod: 30 * time.Second,
			},
			Labels: map[string]string{
				"org.opencontainers.image.title":    b.program,
				"org.opencontainers.image.version":  version.Number,
				"org.opencontainers.image.revision": commit,
			},
		},
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.ConfigFile(base, config)
	if err != nil {
		return nil, err
	}
	for _, files := range []fstest.MapFS{
		{
			"etc/ssl/certs/ca-certificates.crt": {Data: certificates(), Mode: 0o644},
			"LICENCES.txt":                      {Data: licences, Mode: 0o644},
		},
		{b.program: {Data: program, Mode: 0o755}},
	} {
		layer, err := layerOf(files)
		if err != nil {
			return nil, err
		}
		if image, err = mutate.AppendLayers(image, layer); err != nil {
			return nil, err
		}
	}
	return image, nil
}

// certificates returns the authorities that Mozilla trusts, in PEM, as of the version of golang.org/x/crypto's bundle
// in go.mod.
func certificates() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a Buffer has no errors
	}
	return out.Bytes()
}

// layerOf returns a layer with these files and their directories.
func layerOf(files fs.FS) (v1.Layer, error) {
	var archive bytes.Buffer
	if err := pack(&archive, files); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer),
	)
}

// writeArchive writes files to a tar file.
func writeArchive(archive string, files fs.FS) error {
	out, err := os.Create(archive)
	if err != nil {
		return err
	}
	if err := errors.Join(pack(out, files), out.Close()); err != nil {
		return fmt.Errorf("write %s: %w", archive, err)
	}
	return nil
}

// pack writes files and their directories in the format of tar, in the order of their names. They belong to root, and
// nothing in it depends on the machine or the time.
func pack(out io.Writer, files fs.FS) error {
	writer := tar.NewWriter(out)
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		header := &tar.Header{
			Typeflag: tar.TypeDir,
			Name:     name + "/",
			Mode:     0o755,
			ModTime:  time.Unix(0, 0),
			Format:   tar.FormatUSTAR,
		}
		if entry.IsDir() {
			return writer.WriteHeader(header)
		}
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		header.Typeflag, header.Name, header.Size = tar.TypeReg, name, int64(len(data))
		if info, err := entry.Info(); err != nil || info.Mode().Perm()&0o100 == 0 {
			header.Mode = 0o644
		}
		if err := writer.WriteHeader(header); err != nil {
			return err
		}
		_, err = writer.Write(data)
		return err
	})
	return errors.Join(err, writer.Close())
}

// programs returns the programs that are shipped.
func programs() []string { return []string{"authserver", "resourceapi"} }

// A module is a module that is linked into a program.
type module struct {
	path, version string
	programs      []string
	files         map[string]string // name relative to the module → text
	licences      []string          // SPDX names, sorted
}

// writeLicences writes the table, and the texts that the images contain, from the downloaded modules.
func writeLicences(root string) error {
	table, texts, err := licences(root)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(root, "deploy/LICENCES.md"), table, 0o644),
		os.WriteFile(filepath.Join(root, "deploy/LICENCES.txt"), texts, 0o644))
}

func licences(root string) (table, texts []byte, err error) {
	modules, err := linked(root)
	if err != nil {
		return nil, nil, err
	}
	if err := classify(modules); err != nil {
		return nil, nil, err
	}
	return tabulate(modules), collect(modules), nil
}

// A goPackage is a package in the output of go list.
type goPackage struct {
	Dir    string
	Module *goModule
}

type goModule struct {
	Path, Version, Dir string
	Main               bool
	Replace            *goModule
}

// linked returns the modules of all packages in the programs, for Linux on amd64, with their legal files.
func linked(root string) ([]*module, error) {
	found := map[string]*module{}
	for _, program := range programs() {
		command := exec.Command("go", "list", "-deps", "-json=Dir,Module", "-tags="+version.BuildTags, "./cmd/"+program)
		command.Dir = filepath.Join(root, program)
		command.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64",
			"GOFLAGS=-mod=readonly")
		var complaint bytes.Buffer
		command.Stderr = &complaint
		listed, err := command.Output()
		if err != nil {
			return nil, fmt.Errorf("list the modules of %s: %w: %s", program, err, complaint.String())
		}
		for decoder := json.NewDecoder(bytes.NewReader(listed)); ; {
			var p goPackage
			if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, err
			}
			if p.Module == nil || p.Module.Main || strings.HasPrefix(p.Module.Path+"/", ours) {
				continue // the standard library, which has no module, or our own code
			}
			if err := add(found, program, p); err != nil {
				return nil, err
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *module) int {
		return cmp.Or(strings.Compare(a.path, b.path), strings.Compare(a.version, b.version))
	}), nil
}

func add(found map[string]*module, program string, p goPackage) error {
	used := cmp.Or(p.Module.Replace, p.Module)
	name := used.Path + "@" + used.Version
	m := found[name]
	if m == nil {
		m = &module{path: used.Path, version: used.Version, files: map[string]string{}}
		found[name] = m
	}
	if !slices.Contains(m.programs, program) {
		m.programs = append(m.programs, program)
	}
	for at := p.Dir; ; at = filepath.Dir(at) {
		if err := m.read(used.Dir, at); err != nil {
			return err
		}
		if at == used.Dir || at == filepath.Dir(at) {
			return nil
		}
	}
}

var legalFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.\-_].*)?$`)

// read reads the legal files of a directory of the module.
func (m *module) read(root, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() || !legalFile.MatchString(entry.Name()) || filepath.Ext(entry.Name()) == ".go" {
			continue
		}
		name, err := filepath.Rel(root, filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		m.files[name] = strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n")) + "\n"
	}
	return nil
}

// withoutAttribution is a licence that the classifier lacks (https://spdx.org/licenses/MIT-0.html).
//
//go:embed MIT-0.txt
var withoutAttribution []byte

// classify sets the modules' licences from their texts. A module without a recognised licence is an error, which needs
// a decision.
func classify(modules []*module) error {
	known, err := assets.DefaultClassifier()
	if err != nil {
		return err
	}
	known.AddContent("License", "MIT-0", "MIT-0.txt", withoutAttribution)
	seen := map[string][]string{} // text → licences; most texts occur many times
	for _, m := range modules {
		for _, name := range slices.Sorted(maps.Keys(m.files)) {
			text := m.files[name]
			if _, ok := seen[text]; !ok {
				for _, match := range known.Match([]byte(text)).Matches {
					if match.MatchType == "License" {
						seen[text] = append(seen[text], match.Name)
					}
				}
			}
			m.licences = append(m.licences, seen[text]...)
		}
		slices.Sort(m.licences)
		if m.licences = slices.Compact(m.licences); len(m.licences) == 0 {
			files := slices.Sorted(maps.Keys(m.files))
			return fmt.Errorf("%s %s: unknown licence in %v", m.path, m.version, files)
		}
	}
	return nil
}

func tabulate(modules []*module) []byte {
	var out bytes.Buffer
	out.WriteString(
		"# Licences\n\nOf every module that is linked into a program, for Linux on amd64. The texts are in " +
			"LICENCES.txt, and in each image at /LICENCES.txt.\n" +
			"Both files are written by `make generate`. The standard library of Go is under BSD-3-Clause too.\n\n| " +
			"module | version | licence | in |\n|---|---|---|---|\n",
	)
	for _, m := range modules {
		fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", m.path, m.version, strings.Join(m.licences, ", "),
			strings.Join(m.programs, ", "))
	}
	return out.Bytes()
}

// collect writes every text once, after the names of the files that contain it.
func collect(modules []*module) []byte {
	holders := map[string][]string{}
	for _, m := range modules {
		for name, text := range m.files {
			holders[text] = append(holders[text], m.path+" "+m.version+", "+name)
		}
	}
	for _, names := range holders {
		slices.Sort(names)
	}
	texts := slices.SortedFunc(maps.Keys(holders), func(a, b string) int {
		return strings.Compare(holders[a][0], holders[b][0])
	})
	var out bytes.Buffer
	out.WriteString(
		"The licences and notices of what Almoner's programs are made of. The standard library of Go is under the " +
			"licence of golang.org/x/crypto.\n",
	)
	for _, text := range texts {
		fmt.Fprintf(&out, "\n%s\n%s\n\n%s", strings.Repeat("=", 100), strings.Join(holders[text], "\n"), text)
	}
	return out.Bytes()
}
