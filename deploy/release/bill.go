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

	"github.com/almonerhq/almoner/shared/version"
)

const ours = "github.com/almonerhq/almoner/"

// writeBill writes the bill of materials of a program: the modules that the linker says it put in, not those that
// go.mod asks for. The same program has the same bill: there is no time in it, and its serial number is made from the
// program.
func writeBill(out io.Writer, program string) error {
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("%s is no program made by Go, or was stripped of its modules: %w", program, err)
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
	// What is linked to what among them, the program does not say.
	bill.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	encoder := cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON)
	encoder.SetPretty(true)
	return encoder.EncodeVersion(bill, cyclonedx.SpecVersion1_6)
}

// componentOf is a module as it is in the program: what stands in the place of another one is listed itself.
func componentOf(module *debug.Module) cyclonedx.Component {
	if strings.HasPrefix(module.Path, ours) {
		return component(module.Path, version.Number, "") // replaced by the directory beside it
	}
	if module.Replace != nil {
		module = module.Replace
	}
	return component(module.Path, module.Version, module.Sum)
}

// component is a module with its address as a package (purl), and the hash by which go.sum knows it: SHA-256 of its
// files' hashes.
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
