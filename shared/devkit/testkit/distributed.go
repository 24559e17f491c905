package testkit

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
)

// distributeVariable makes the databases of tests distributed ones, if it is "1". The server must be a single node with
// the extension citus.
const distributeVariable = "ALMONER_TEST_DISTRIBUTE"

func distributes() bool { return os.Getenv(distributeVariable) == "1" }

// SkipIfDistributed skips a test that cannot pass in a distributed database.
func SkipIfDistributed(t testing.TB, reason string) {
	t.Helper()
	if distributes() {
		t.Skip("in a distributed database " + reason)
	}
}

// distribute distributes the template with the commands of the services. Each copy of the template is then a Citus
// cluster of one node.
func (t template) distribute(ctx context.Context, root string, services []string) error {
	superuser, err := pgx.Connect(ctx, inDatabase(t.server, t.name))
	if err != nil {
		return fmt.Errorf("distribute the template database: %w", err)
	}
	defer func() { _ = superuser.Close(context.WithoutCancel(ctx)) }()
	config := superuser.Config()
	for _, statement := range []string{
		"create extension citus",
		fmt.Sprintf("select citus_set_coordinator_host('%s', %d)", config.Host, config.Port),
		"select citus_set_node_property(nodename, nodeport, 'shouldhaveshards', true) from pg_dist_node",
	} {
		if _, err := superuser.Exec(ctx, statement); err != nil {
			return fmt.Errorf("distribute the template database: %s: %w", statement, err)
		}
	}
	for _, service := range services {
		command := exec.CommandContext(ctx, "go", "run", "./cmd/"+service, "migrate", "--distribute")
		command.Dir = filepath.Join(root, service)
		command.Env = append(os.Environ(), "ALMONER_DATABASE_URL="+t.url(ownerRole, t.name))
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("distribute the template database: %w: %s", err, out)
		}
	}
	// Tests create these themselves.
	for _, statement := range []string{"drop schema river cascade", "drop index if exists resource.programmes_search"} {
		if _, err := superuser.Exec(ctx, statement); err != nil {
			return fmt.Errorf("distribute the template database: %s: %w", statement, err)
		}
	}
	return nil
}
