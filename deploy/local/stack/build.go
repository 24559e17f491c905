package stack

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/almonerhq/almoner/shared/version"
)

// The services, in the order in which their migrations are applied: authserver's make the roles that resourceapi's need.
const (
	authserver  = "authserver"
	resourceapi = "resourceapi"
)

// Build compiles both services of the repository at root into a directory, with the build tags of what is shipped and further flags of the compiler. An error holds
// what the compiler said.
func Build(ctx context.Context, root, into string, flags ...string) error {
	into, err := filepath.Abs(into)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	arguments := append([]string{"build", "-tags=" + version.BuildTags, "-o", into + string(filepath.Separator)}, flags...)
	command := exec.CommandContext(ctx, "go", append(arguments, "./authserver/cmd/authserver", "./resourceapi/cmd/resourceapi")...)
	command.Dir = root
	command.Env = append(os.Environ(), "GOTOOLCHAIN=local")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("the services do not build: %s", strings.TrimSpace(string(out)))
	}
	return nil
}
