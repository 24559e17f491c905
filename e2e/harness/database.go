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
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/localstore"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// A Database changes rows as the owner of the database, as an administrator's command or the passing of time would.
type Database struct {
	rows    *pgxpool.Pool
	secrets *Secrets
}

// The password of every user that Database creates, and its argon2id hash. The hash has low cost parameters because
// these tests sign in hundreds of times.
const (
	password     = "OMQHGTZBIAHYUEYNHC2LMRROFS"
	passwordHash = "$argon2id$v=19$m=1024,t=1,p=1$COFxLuucrLL066hZh4nMBQ$m+blcHR3Ol5+h4NhVmxERdHSpmoqOZThhAOiJvl2J4Y"
)

func newDatabase(t testing.TB, ownerURL string, secrets *Secrets) *Database {
	t.Helper()
	rows, err := pgxpool.New(t.Context(), ownerURL)
	if err != nil {
		t.Fatal("the database owner's URL cannot be used")
	}
	t.Cleanup(rows.Close)
	return &Database{rows: rows, secrets: secrets}
}

// Reconnect drops connections that an outage may have broken.
func (d *Database) Reconnect() { d.rows.Reset() }

// deadlockTries is how often a statement is repeated that ended in a deadlock: in a distributed Postgres, changes of
// tables that are copied to each node wait for each other.
const deadlockTries = 10

// Exec runs SQL that must affect at least one row.
func (d *Database) Exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	tag, err := d.rows.Exec(context.WithoutCancel(t.Context()), sql, args...)
	for range deadlockTries {
		if refused, ok := errors.AsType[*pgconn.PgError](err); !ok || refused.Code != "40P01" {
			break
		}
		tag, err = d.rows.Exec(context.WithoutCancel(t.Context()), sql, args...)
	}
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	if tag.RowsAffected() == 0 {
		t.Fatalf("%s: no row touched", sql)
	}
}

// Begin begins a transaction, which is rolled back when the test ends.
func (d *Database) Begin(t testing.TB) pgx.Tx {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	tx, err := d.rows.Begin(ctx)
	must(t, err)
	t.Cleanup(func() { _ = tx.Rollback(ctx) }) // without an effect after a commit
	return tx
}

// Hold runs SQL in a transaction that stays open, with its locks, until release is called.
func (d *Database) Hold(t testing.TB, sql string, args ...any) (release func()) {
	t.Helper()
	ctx, tx := context.WithoutCancel(t.Context()), d.Begin(t)
	if _, err := tx.Exec(ctx, sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return sync.OnceFunc(func() { _ = tx.Rollback(ctx) }) // nothing to commit
}

// Count returns the single number of a query.
func (d *Database) Count(t testing.TB, sql string, args ...any) int {
	t.Helper()
	var count int
	if err := d.rows.QueryRow(t.Context(), sql, args...).Scan(&count); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return count
}

// Workspace creates a workspace in a new organisation, with every module enabled and provisioned and LLM integration
// on.
func (d *Database) Workspace(t testing.TB) demo.Workspace {
	t.Helper()
	workspace := demo.Workspace{ID: uuid.NewString(), Name: "Canal Lane Pantry " + rand.Text()[:6]}
	organisation := uuid.New()
	d.Exec(t, `insert into account.organisations (id, name) values ($1, 'Canal Lane Trust')`, organisation)
	d.Exec(t, `insert into account.tenants (id, organisation_id, name) values ($1, $2, $3)`, workspace.ID, organisation,
		workspace.Name)
	d.Exec(t, `insert into account.tenant_modules (tenant_id, module, enabled, provisioned)
		select $1, unnest($2::text[]), true, true`, workspace.ID, perm.Modules())
	d.Exec(t, `insert into account.tenant_features (tenant_id, feature, enabled) values ($1, 'llm_integration', true)`,
		workspace.ID)
	return workspace
}

// User creates a user who can sign in and is a member of no workspace.
func (d *Database) User(t testing.TB) demo.User {
	t.Helper()
	id := uuid.NewString()
	user := demo.User{ID: id, Email: "ada." + strings.ToLower(rand.Text()[:10]) + "@example.org", Password: password}
	d.Exec(t, `insert into account.users (id, email, name, password_hash) values ($1, $2, 'Ada Okafor', $3)`, id,
		user.Email, passwordHash)
	_, err := d.rows.Exec(t.Context(), demo.MarkProven(id))
	must(t, err)
	d.secrets.Add("password", password)
	return user
}

// Join makes a user a member with the permissions.
func (d *Database) Join(t testing.TB, workspace demo.Workspace, user demo.User, permissions ...string) {
	t.Helper()
	d.Exec(t,
		`insert into account.memberships (tenant_id, user_id, permissions) values ($1, $2, coalesce($3, '{}'::text[]))`,
		workspace.ID, user.ID, permissions)
}

// Permit replaces the permissions of a member.
func (d *Database) Permit(t testing.TB, workspace demo.Workspace, user demo.User, permissions ...string) {
	t.Helper()
	d.Exec(t,
		`update account.memberships set permissions = coalesce($3, '{}'::text[]) where tenant_id = $1 and user_id = $2`,
		workspace.ID, user.ID, permissions)
}

// Leave deletes a membership and nothing else.
func (d *Database) Leave(t testing.TB, workspace demo.Workspace, user demo.User) {
	t.Helper()
	d.Exec(t, `delete from account.memberships where tenant_id = $1 and user_id = $2`, workspace.ID, user.ID)
}

// SetLLM switches the workspace's LLM integration on or off.
func (d *Database) SetLLM(t testing.TB, workspace demo.Workspace, on bool) {
	t.Helper()
	d.Exec(t, `update account.tenant_features set enabled = $2 where tenant_id = $1 and feature = 'llm_integration'`,
		workspace.ID, on)
}

// SetModule changes the state of the workspace's Programmes module.
func (d *Database) SetModule(t testing.TB, workspace demo.Workspace, enabled, provisioned bool) {
	t.Helper()
	d.Exec(t, `update account.tenant_modules set enabled = $2, provisioned = $3
		where tenant_id = $1 and module = 'programmes'`, workspace.ID, enabled, provisioned)
}

// Token creates a personal access token, as Settings would.
func (d *Database) Token(t testing.TB, workspace demo.Workspace, user demo.User, permissions ...string) string {
	t.Helper()
	secret, err := credential.PersonalAccessToken.New(rand.Reader)
	must(t, err)
	d.secrets.AddAll(secret.Reveal())
	d.Exec(t, `insert into account.personal_access_tokens (id, hash, user_id, tenant_id, name, permissions, expires_at)
		values ($1, $2, $3, $4, 'Nightly report', $5, now() + interval '7 days')`,
		uuid.New(), credential.Hash(secret.Reveal()), user.ID, workspace.ID, permissions)
	return secret.Reveal()
}

// RevokeToken revokes a personal access token, as Settings would.
func (d *Database) RevokeToken(t testing.TB, token string) {
	t.Helper()
	d.Exec(t, `update account.personal_access_tokens set revoked_at = now(), revoke_reason = 'revoked_by_user'
		where hash = $1`, credential.Hash(token))
}

// ExpireToken lets a personal access token expire.
func (d *Database) ExpireToken(t testing.TB, token string) {
	t.Helper()
	d.Exec(t, `update account.personal_access_tokens
		set created_at = created_at - interval '90 days', expires_at = now() - interval '1 second'
		where hash = $1`, credential.Hash(token))
}

// EndGrantIn sets the remaining lifetime of a grant; a negative one ends it in the past.
func (d *Database) EndGrantIn(t testing.TB, grant string, left time.Duration) {
	t.Helper()
	d.Exec(t, `update account.grants set ends_at = now() + $2 where id = $1`, grant, left)
}

// Text returns the single text value of a query, or "" if it is null.
func (d *Database) Text(t testing.TB, sql string, args ...any) string {
	t.Helper()
	var text *string
	if err := d.rows.QueryRow(t.Context(), sql, args...).Scan(&text); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	if text == nil {
		return ""
	}
	return *text
}

// Define runs SQL that affects no row, such as DDL.
func (d *Database) Define(t testing.TB, sql string) {
	t.Helper()
	if _, err := d.rows.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

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

// distribute runs migrate --distribute --yes of both services while the services run.
func distribute(ctx context.Context, binaries, database string) error {
	distributing.Lock()
	defer distributing.Unlock()
	for _, service := range []string{"authserver", "resourceapi"} {
		command := exec.CommandContext(ctx, filepath.Join(binaries, service), "migrate", "--distribute", "--yes")
		command.Env = []string{"ALMONER_DATABASE_URL=" + database}
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%s migrate --distribute --yes: %w: %s", service, err, out)
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
