package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/net/version"
)

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
