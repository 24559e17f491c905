package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
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

	classifier "github.com/google/licenseclassifier/v2"
	"github.com/google/licenseclassifier/v2/assets"

	"github.com/almonerhq/almoner/shared/net/version"
)

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
	Module *struct {
		Path, Version, Dir string
		Main               bool
		Replace            *struct{ Path, Version, Dir string }
	}
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
	path, number, dir := p.Module.Path, p.Module.Version, p.Module.Dir
	if r := p.Module.Replace; r != nil {
		path, number, dir = r.Path, r.Version, r.Dir
	}
	m := found[path+"@"+number]
	if m == nil {
		m = &module{path: path, version: number, files: map[string]string{}}
		found[path+"@"+number] = m
	}
	if !slices.Contains(m.programs, program) {
		m.programs = append(m.programs, program)
	}
	for at := p.Dir; ; at = filepath.Dir(at) {
		if err := m.read(dir, at); err != nil {
			return err
		}
		if at == dir || at == filepath.Dir(at) {
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
				seen[text] = names(known.Match([]byte(text)))
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

func names(results classifier.Results) []string {
	var found []string
	for _, match := range results.Matches {
		if match.MatchType == "License" {
			found = append(found, match.Name)
		}
	}
	return found
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
