package stack

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/net/version"
)

// These are the services in the order of their migrations: authserver's create the roles that resourceapi's need.
const (
	authserver  = "authserver"
	resourceapi = "resourceapi"
)

// Flags returns the build flags of everything that is run or shipped (deploy/image/Dockerfile), for Go without C.
func Flags() []string { return []string{"-trimpath", "-tags=" + version.BuildTags} }

// Services returns the names of both services.
func Services() []string { return []string{authserver, resourceapi} }

// Build compiles both services of the repository at root into a directory, with Flags and further flags. An error
// contains the compiler's output.
func Build(ctx context.Context, root, into string, flags ...string) error {
	return BuildSome(ctx, root, into, Services(), flags...)
}

// BuildSome is Build for some of the services.
func BuildSome(ctx context.Context, root, into string, services []string, flags ...string) error {
	into, err := filepath.Abs(into)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	arguments := slices.Concat([]string{"build", "-o", into + string(filepath.Separator)}, Flags(), flags)
	for _, service := range services {
		arguments = append(arguments, "./"+service+"/cmd/"+service)
	}
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Dir = root
	command.Env = append(os.Environ(), "GOTOOLCHAIN=local", "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		output := strings.TrimSpace(string(out))
		if output == "" {
			output = "go printed nothing"
		}
		return fmt.Errorf("build the services: %w: %s", err, output)
	}
	return nil
}

// givenWithin limits the response time of a store named by the options.
const givenWithin = 5 * time.Second

// Check returns an error that would prevent Start and can be detected without starting anything: another stack in the
// same directory, a directory that is not writable, a port in use, or a given store that does not respond.
func Check(ctx context.Context, options Options) error {
	h, err := openHome(options.Home)
	if err != nil {
		return err
	}
	defer h.release()
	if _, err = choosePorts(options.Port); err != nil {
		return err
	}
	if options.RedisURL != "" {
		if err := askRedis(ctx, options.RedisURL); err != nil {
			return err
		}
	}
	if options.DatabaseURL == "" {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, givenWithin)
	defer cancel()
	db, err := pgx.Connect(within, options.DatabaseURL)
	if err != nil {
		return (&Stack{options: options}).explainDatabase(withoutURL(err))
	}
	return db.Close(context.WithoutCancel(ctx))
}
