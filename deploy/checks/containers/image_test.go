// Package containers tests the container deployment without an engine. It parses the Dockerfile and the compose file
// with the libraries of Docker and Compose, and runs the programs as these files say, in a root directory with the
// contents of the image.
package containers

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/net/version"
)

const (
	root       = "../../.."
	dockerfile = root + "/deploy/image/Dockerfile"
	commit     = "0123456789abcdef0123456789abcdef01234567"

	// In bytes, unpacked. Of authserver, 450,000 are the time zones of its mails, and 900,000 the API description.
	maxImage = 50_000_000
)

var must = testkit.Must

func stage(t *testing.T, name string) instructions.Stage {
	t.Helper()
	content, err := os.ReadFile(dockerfile)
	must(t, err)
	parsed, err := parser.Parse(bytes.NewReader(content))
	must(t, err)
	all, _, err := instructions.Parse(parsed.AST, nil)
	must(t, err)
	i := slices.IndexFunc(all, func(s instructions.Stage) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("there is no stage %s", name)
	}
	return all[i]
}

// only returns the single command of its kind in a stage.
func only[C instructions.Command](t *testing.T, s instructions.Stage) C {
	t.Helper()
	var found []C
	for _, command := range s.Commands {
		if c, ok := command.(C); ok {
			found = append(found, c)
		}
	}
	if len(found) != 1 {
		t.Fatalf("stage %s: %d commands of type %T", s.Name, len(found), *new(C))
	}
	return found[0]
}

// A recipe is the build of one program in the Dockerfile: its sources, environment and commands.
type recipe struct {
	sources     []string // below the repository's root
	environment []string
	script      string
}

// recipeFor reads the stages that build a service: its own and the base of that.
func recipeFor(t *testing.T, service string) recipe {
	t.Helper()
	build := stage(t, "build-"+service)
	base := stage(t, build.BaseName)
	var r recipe
	for _, command := range slices.Concat(base.Commands, build.Commands) {
		switch c := command.(type) {
		case *instructions.CopyCommand:
			if c.From != "" || len(c.SourcePaths) != 1 || c.SourcePaths[0] != c.DestPath {
				t.Fatalf("%s: a build may copy only from the repository, to the same path", c)
			}
			r.sources = append(r.sources, c.SourcePaths...)
		case *instructions.EnvCommand:
			for _, pair := range c.Env {
				r.environment = append(r.environment, pair.Key+"="+pair.Value)
			}
		case *instructions.RunCommand:
			r.script += strings.Join(c.CmdLine, " ") + "\n"
		case *instructions.ArgCommand:
			if len(c.Args) != 1 || c.Args[0].Key != "COMMIT" {
				t.Fatalf("%s: this test knows no other argument", c)
			}
		case *instructions.WorkdirCommand:
			if c.Path != "/src" {
				t.Fatalf("%s: builds must run in /src", c)
			}
		default:
			t.Fatalf("%s: this test does not know the command", c)
		}
	}
	return r
}

// build runs a service's build of the Dockerfile in a new directory and returns the program's path.
func build(t *testing.T, service string) string {
	t.Helper()
	dir := newDir(t)
	r := recipeFor(t, service)
	copySources(t, r.sources, filepath.Join(dir, "src"))
	out := filepath.Join(dir, "out") + "/"
	if !strings.Contains(r.script, " /out/"+service+" ") {
		t.Fatalf("the program is not written to /out: %s", r.script)
	}
	command := exec.CommandContext(t.Context(), "sh", "-euc", strings.ReplaceAll(r.script, " /out/", " "+out))
	command.Dir = filepath.Join(dir, "src")
	command.Env = slices.Concat(os.Environ(), []string{"GOFLAGS=" + parallel()}, r.environment,
		[]string{"COMMIT=" + commit})
	if printed, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, printed)
	}
	return out + service
}

// parallel returns the -p flag of GOFLAGS, which limits concurrent compilation. No other part of GOFLAGS reaches a
// build.
func parallel() string {
	for _, flag := range strings.Fields(os.Getenv("GOFLAGS")) {
		if strings.HasPrefix(flag, "-p=") {
			return flag
		}
	}
	return ""
}

// newDir returns a directory that other users can enter, since the programs run as another user.
func newDir(t *testing.T) string {
	t.Helper()
	dir, err := localstore.TempDir("almoner-image-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	return dir
}

// copySources copies what .dockerignore allows.
func copySources(t *testing.T, sources []string, to string) {
	t.Helper()
	must(t, os.MkdirAll(to, 0o755))
	script := `tar -C "$0" --exclude='*_test.go' --exclude=testdata -c -f - -- "$@" | tar -C "$TO" -x -f -`
	command := exec.CommandContext(t.Context(), "sh", append([]string{"-euc", script, root}, sources...)...)
	command.Env = append(os.Environ(), "TO="+to)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// copyFile copies a file, so that every user can run it.
func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, content, 0o755))
}

// programs holds the built programs, for all tests of this process.
var programs sync.Map

func program(t *testing.T, service string) []byte {
	t.Helper()
	made, _ := programs.LoadOrStore(service,
		sync.OnceValues(func() ([]byte, error) { return os.ReadFile(build(t, service)) }))
	content, err := made.(func() ([]byte, error))()
	if err != nil || len(content) == 0 {
		t.Fatalf("%s was not built: %v", service, err)
	}
	return content
}

// An image is the root directory that a container would have.
type image struct {
	root       string
	entrypoint []string
	user       string
}

// assemble creates the contents of a service's image as the Dockerfile says.
func assemble(t *testing.T, service string) image {
	t.Helper()
	final := stage(t, service)
	if final.BaseName != "scratch" {
		t.Fatalf("%s is made from %s", service, final.BaseName)
	}
	i := image{
		root:       newDir(t),
		user:       only[*instructions.UserCommand](t, final).User,
		entrypoint: only[*instructions.EntrypointCommand](t, final).CmdLine,
	}
	for _, command := range final.Commands {
		c, ok := command.(*instructions.CopyCommand)
		if !ok {
			continue
		}
		for _, source := range c.SourcePaths {
			destination := filepath.Join(i.root, c.DestPath)
			var err error
			switch c.From {
			case "build-" + service:
				err = os.WriteFile(destination, program(t, service), 0o755)
			case "go":
				err = copyFile(source, destination) // this machine's file instead of the builder's
			case "":
				err = copyFile(filepath.Join(root, source), destination)
			default:
				err = fmt.Errorf("from %s", c.From)
			}
			if err != nil {
				t.Fatalf("%s: %v", c, err)
			}
		}
	}
	return i
}

func services() []string { return []string{"authserver", "resourceapi"} }

func TestImage_IsSmallAndUnprivileged(t *testing.T) {
	for _, service := range services() {
		i := assemble(t, service)
		if i.user != "65532:65532" {
			t.Errorf("%s runs as %s", service, i.user)
		}
		var total int64
		err := filepath.WalkDir(i.root, func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			info, err := entry.Info()
			total += info.Size()
			return err
		})
		if err != nil || total >= maxImage {
			t.Errorf("the image of %s has %d bytes, %v", service, total, err)
		}
		t.Logf("%s: %d bytes", service, total)
	}
}

func TestProgram_IsStaticAndHasNoBuildPaths(t *testing.T) {
	modules, err := exec.Command("go", "env", "GOMODCACHE").Output()
	must(t, err)
	for _, service := range services() {
		content := program(t, service)
		file, err := elf.NewFile(bytes.NewReader(content))
		must(t, err)
		libraries, err := file.ImportedLibraries()
		if err != nil || len(libraries) > 0 ||
			slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
			t.Errorf("%s is linked to %v, %v", service, libraries, err)
		}
		for _, place := range []string{strings.TrimSpace(string(modules)), "/almoner-image-"} {
			if bytes.Contains(content, []byte(place)) {
				t.Errorf("%s contains a build path: %s", service, place)
			}
		}
		if !bytes.Contains(content, []byte(commit)) {
			t.Errorf("%s does not contain its commit", service)
		}
	}
}

// Both services are built alike, so one of them is built again.
func TestProgram_BuildIsReproducible(t *testing.T) {
	one, other := recipeFor(t, "authserver"), recipeFor(t, "resourceapi")
	if alike := strings.ReplaceAll(fmt.Sprint(one), "authserver", "resourceapi"); alike != fmt.Sprint(other) {
		t.Errorf("the services are built differently:\n%s\n%s", alike, other)
	}
	rebuilt, err := os.ReadFile(build(t, "authserver"))
	must(t, err)
	if !bytes.Equal(program(t, "authserver"), rebuilt) {
		t.Error("authserver differs when it is built in another directory")
	}
}

// TestImage_CopiesFilesWithExplicitModes checks that an image only copies files, with explicit modes, and runs no
// command.
func TestImage_CopiesFilesWithExplicitModes(t *testing.T) {
	modes := map[string]string{"/LICENCES.txt": "0644", "/etc/ssl/certs/ca-certificates.crt": "0644"}
	for _, service := range services() {
		modes["/"+service] = "0755"
		for _, command := range stage(t, service).Commands {
			switch c := command.(type) {
			case *instructions.CopyCommand:
				if want := modes[c.DestPath]; want == "" || c.Chmod != want {
					t.Errorf("%s: %s has the mode %q", service, c.DestPath, c.Chmod)
				}
			case *instructions.UserCommand,
				*instructions.ExposeCommand,
				*instructions.HealthCheckCommand,
				*instructions.EntrypointCommand,
				*instructions.CmdCommand:
			default:
				t.Errorf("%s: %s", service, c)
			}
		}
	}
}

func TestDockerfile_UsesBuildTagsOfTheTests(t *testing.T) {
	for _, service := range services() {
		if script := recipeFor(t, service).script; !strings.Contains(script, " -tags="+version.BuildTags+" ") {
			t.Errorf("%s is built with other tags than %s", service, version.BuildTags)
		}
	}
}
