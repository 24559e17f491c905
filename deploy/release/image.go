package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"testing/fstest"
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

// imageOf returns the image of one program: certificates and licences in one layer, the program in another.
func imageOf(b build, commit, file string, licences []byte) (v1.Image, error) {
	program, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
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
