package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"

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
