package harness

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// citusVariable is an environment variable with the superuser URLs of the nodes of a Citus cluster, separated by
// spaces, the coordinator first. If it is set, each stack uses a database of the cluster and distributes its tables
// after it has started.
const citusVariable = "ALMONER_TEST_CITUS"

// distributedDatabase creates a database in the cluster and returns its URL, or "" if there is no cluster.
func distributedDatabase(ctx context.Context) (string, error) {
	nodes := strings.Fields(os.Getenv(citusVariable))
	if len(nodes) == 0 {
		return "", nil
	}
	return newCitusDatabase(ctx, nodes, "almoner_"+strings.ToLower(rand.Text()[:10]))
}

// distributing lets one stack distribute at a time, because all databases of a node share its replication slots.
var distributing sync.Mutex

// distribute runs migrate --distribute of both services while the services run.
func distribute(ctx context.Context, binaries, database string) error {
	distributing.Lock()
	defer distributing.Unlock()
	for _, service := range []string{"authserver", "resourceapi"} {
		command := exec.CommandContext(ctx, filepath.Join(binaries, service), "migrate", "--distribute")
		command.Env = []string{"ALMONER_DATABASE_URL=" + database}
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%s migrate --distribute: %w: %s", service, err, out)
		}
	}
	return nil
}

// newCitusDatabase creates a database on the nodes and joins them. It returns the URL of the coordinator's superuser.
// nodes are the URLs of the nodes' superusers, the coordinator first.
func newCitusDatabase(ctx context.Context, nodes []string, name string) (string, error) {
	for _, node := range nodes {
		if err := runSQL(ctx, node, "create database "+pgx.Identifier{name}.Sanitize()); err != nil {
			return "", err
		}
		if err := runSQL(ctx, inDatabase(node, name), "create extension citus"); err != nil {
			return "", err
		}
	}
	for i, node := range nodes {
		parsed, err := url.Parse(node)
		if err != nil {
			return "", errors.New("the URL of a node cannot be parsed")
		}
		join := "select citus_add_node($1, $2::text::int)"
		if i == 0 {
			join = "select citus_set_coordinator_host($1, $2::text::int)"
		}
		if err := runSQL(ctx, inDatabase(nodes[0], name), join, parsed.Hostname(), parsed.Port()); err != nil {
			return "", err
		}
	}
	return inDatabase(nodes[0], name), nil
}

// inDatabase returns the URL with another database.
func inDatabase(node, database string) string {
	parsed, err := url.Parse(node)
	if err != nil {
		return ""
	}
	parsed.Path = "/" + database
	return parsed.String()
}

func runSQL(ctx context.Context, url, text string, args ...any) error {
	connection, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect to a node: %w", err)
	}
	defer func() { _ = connection.Close(context.WithoutCancel(ctx)) }()
	if _, err := connection.Exec(ctx, text, args...); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	return nil
}

// StartCitus starts a Citus cluster for this test. The stacks that the test starts use it.
func StartCitus(t *testing.T, workers int) *localstore.Citus {
	t.Helper()
	home, err := localstore.TempDir("almoner-citus-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	if err := os.Chmod(home, 0o711); err != nil { // the servers' user must be able to enter it
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startWithin)
	defer cancel()
	options := localstore.Options{Dir: filepath.Join(home, "c"), Volatile: true}
	cluster, err := localstore.StartCitus(ctx, options, workers)
	if err != nil {
		t.Fatalf("start Citus: %v", err)
	}
	t.Cleanup(cluster.Stop)
	var nodes []string
	for _, node := range cluster.Nodes {
		nodes = append(nodes, node.URL)
	}
	// t.Setenv would prevent parallel subtests.
	if err := os.Setenv(citusVariable, strings.Join(nodes, " ")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Unsetenv(citusVariable) })
	return cluster
}
