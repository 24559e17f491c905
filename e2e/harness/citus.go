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
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
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
		if err := runSQL(ctx, testkit.InDatabase(node, name), "create extension citus"); err != nil {
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
		if err := runSQL(ctx, testkit.InDatabase(nodes[0], name), join, parsed.Hostname(), parsed.Port()); err != nil {
			return "", err
		}
	}
	return testkit.InDatabase(nodes[0], name), nil
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

// RefreshAtWorkers creates the role for refreshes, whose commits do not wait for the disk of any node, and restarts the
// services with its URL. It names the workers, the last one first, so that refreshes do not pass through the
// coordinator. database is the URL of the coordinator's superuser.
func RefreshAtWorkers(t *testing.T, cluster *localstore.Citus, database string, services ...*stack.Service) {
	t.Helper()
	must(t, runSQL(t.Context(), database, `do $$ begin
		if not exists (select from pg_roles where rolname = 'refreshes') then
			create role refreshes login in role almoner_authserver;
		end if;
	end $$`))
	must(t, runSQL(t.Context(), database, "alter role refreshes set synchronous_commit = off"))
	var hosts []string
	for _, node := range slices.Backward(cluster.Nodes[1:]) {
		worker, err := url.Parse(node.URL)
		must(t, err)
		hosts = append(hosts, worker.Host)
		must(t, runSQL(t.Context(), node.URL, `do $$ begin
			assert exists (select from pg_user where usename = 'refreshes'
				and useconfig::text = '{synchronous_commit=off}'), 'a worker has no role for refreshes';
		end $$`))
	}
	for _, service := range services {
		address, err := url.Parse(service.Setting("ALMONER_DATABASE_URL"))
		must(t, err)
		address.User, address.Host = url.User("refreshes"), strings.Join(hosts, ",")
		service.Set("ALMONER_REFRESH_DATABASE_URL", address.String())
		must(t, service.Restart(t.Context()))
	}
}

// StartCitus starts a Citus cluster for this test. The stacks that the test starts use it. A durable cluster waits for
// the disk.
func StartCitus(t *testing.T, workers int, durable bool) *localstore.Citus {
	t.Helper()
	cluster := Servers(t, func(ctx context.Context, options localstore.Options) (*localstore.Citus, error) {
		options.Volatile = !durable
		return localstore.StartCitus(ctx, options, workers)
	})
	var nodes []string
	for _, node := range cluster.Nodes {
		nodes = append(nodes, node.URL)
	}
	// t.Setenv would prevent parallel subtests.
	must(t, os.Setenv(citusVariable, strings.Join(nodes, " ")))
	t.Cleanup(func() { _ = os.Unsetenv(citusVariable) })
	return cluster
}
