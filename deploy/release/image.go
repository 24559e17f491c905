package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/almonerhq/almoner/shared/net/version"
)

// user is the user of the images, as in deploy/image/Dockerfile.
const user = "65532:65532"

// ports are the ports on which the programs listen by default.
var ports = map[string]string{"authserver": "8081/tcp", "resourceapi": "8082/tcp"}

// A content is a file of a layer. It belongs to root.
type content struct {
	name string
	mode int64
	data []byte
}

func (c content) write(to *tar.Writer) error {
	if err := to.WriteHeader(header(c.name, tar.TypeReg, c.mode, int64(len(c.data)))); err != nil {
		return err
	}
	_, err := to.Write(c.data)
	return err
}

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
	return digest.String(), archiveOf(dir, archive)
}

// imageOf returns the image of one program: certificates and licences in one layer, the program in another.
func imageOf(b build, commit, file string, licences []byte) (v1.Image, error) {
	program, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, contents := range [][]content{
		{{"etc/ssl/certs/ca-certificates.crt", 0o644, certificates()}, {"LICENCES.txt", 0o644, licences}},
		{{b.program, 0o755, program}},
	} {
		layer, err := layerOf(contents)
		if err != nil {
			return nil, err
		}
		if image, err = mutate.AppendLayers(image, layer); err != nil {
			return nil, err
		}
	}
	config := v1.Config{
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
	}
	return mutate.ConfigFile(image, withConfig(image, b.architecture, config))
}

// withConfig returns the configuration of an image with its layers and without a time.
func withConfig(image v1.Image, architecture string, config v1.Config) *v1.ConfigFile {
	file, err := image.ConfigFile()
	if err != nil {
		file = &v1.ConfigFile{} // not possible: the layers are in memory
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", architecture, config
	return file
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

// layerOf returns a layer with these files and their directories, in order.
func layerOf(contents []content) (v1.Layer, error) {
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	made := map[string]bool{".": true}
	for _, c := range contents {
		for _, dir := range parents(c.name) {
			if made[dir] {
				continue
			}
			made[dir] = true
			if err := writer.WriteHeader(header(dir+"/", tar.TypeDir, 0o755, 0)); err != nil {
				return nil, err
			}
		}
		if err := c.write(writer); err != nil {
			return nil, err
		}
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer),
	)
}

// parents returns the directories above a file, the highest first.
func parents(name string) []string {
	var all []string
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		all = append([]string{dir}, all...)
	}
	return all
}

// header returns the header of a file without anything that depends on the machine or the time.
func header(name string, kind byte, mode, size int64) *tar.Header {
	return &tar.Header{
		Typeflag: kind,
		Name:     name,
		Mode:     mode,
		Size:     size,
		ModTime:  time.Unix(0, 0),
		Format:   tar.FormatUSTAR,
	}
}

// archiveOf writes the files below a directory to a tar file, in the order of their names.
func archiveOf(dir, archive string) error {
	file, err := os.Create(archive)
	if err != nil {
		return err
	}
	writer := tar.NewWriter(file)
	err = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return writer.WriteHeader(header(name+"/", tar.TypeDir, 0o755, 0))
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		mode := int64(0o644)
		if info, err := entry.Info(); err == nil && info.Mode().Perm()&0o100 != 0 {
			mode = 0o755
		}
		return content{name, mode, data}.write(writer)
	})
	if err != nil {
		_ = file.Close()
		return fmt.Errorf("write %s: %w", archive, err)
	}
	if err := writer.Close(); err != nil {
		return err
	}
	return file.Close()
}
