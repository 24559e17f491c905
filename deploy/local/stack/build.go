package stack

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/almonerhq/almoner/shared/version"
)

// The services, in the order in which their migrations are applied: authserver's make the roles that resourceapi's
// need.
const (
	authserver  = "authserver"
	resourceapi = "resourceapi"
)

// Flags are those that everything is compiled with that is run or shipped (deploy/image/Dockerfile), for Go without C.
func Flags() []string { return []string{"-trimpath", "-tags=" + version.BuildTags} }

// Build compiles both services of the repository at root into a directory, with Flags and further ones. An error holds
// what the compiler said.
func Build(ctx context.Context, root, into string, flags ...string) error {
	into, err := filepath.Abs(into)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	arguments := slices.Concat([]string{"build", "-o", into + string(filepath.Separator)}, Flags(), flags,
		[]string{"./authserver/cmd/authserver", "./resourceapi/cmd/resourceapi"})
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Dir = root
	command.Env = append(os.Environ(), "GOTOOLCHAIN=local", "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		said := strings.TrimSpace(string(out))
		if said == "" {
			said = "go wrote nothing"
		}
		return fmt.Errorf("the services do not build (%w): %s", err, said)
	}
	return nil
}
