// Package postgrestest provides tests with a fresh database and its account rows.
//
// A Fixture is a new database with the account rows that the tests of this service need. It stands in for the
// authorization server, which owns these tables, by inserting as the owner of the database. Each test has its own
// Fixture, in its own database (New) or in one that the tests of its package share (For).
package postgrestest

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// A Fixture is the database of one test, or an organisation in a shared database.
type Fixture struct {
	Database testkit.Database
	t        testing.TB
	owner    *pgx.Conn
	org      uuid.UUID
}

// KeyID identifies the published signing key of a Fixture.
const KeyID = "key-1"

// New creates a Fixture with only an organisation and a published signing key.
func New(t testing.TB) *Fixture {
	t.Helper()
	return fixture(t, testkit.NewDatabase(t))
}

func fixture(t testing.TB, database testkit.Database) *Fixture {
	t.Helper()
	f := &Fixture{Database: database, t: t, owner: Connect(t, database.Owner), org: uuid.Must(uuid.NewV7())}
	f.Exec("insert into account.organisations (id, name) values ($1, 'Harbour Trust')", f.org)
	f.Exec(`insert into account.signing_keys (kid, public_jwk, private_sealed, state)
		values ($1, '{}', '', 'current') on conflict do nothing`, KeyID)
	return f
}

// Connect returns a session of a database, which ends with the test.
func Connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	session, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = session.Close(context.Background()) })
	return session
}

// For creates a Fixture for another test in the same database, in which other tests write other workspaces at the same
// time. Use it with testkit.Once.
func (f *Fixture) For(t testing.TB) *Fixture { t.Helper(); return fixture(t, f.Database) }

// URL returns the URL of the service's role.
func (f *Fixture) URL() credential.Source {
	return credential.Fixed(credential.Secret(f.Database.Resourceapi))
}

// Exec runs a statement as the owner of the database.
func (f *Fixture) Exec(sql string, args ...any) {
	f.t.Helper()
	if _, err := f.owner.Exec(context.Background(), sql, args...); err != nil {
		f.t.Fatalf("%s: %v", sql, err)
	}
}

// Count returns the number that a query yields, as the owner of the database.
func (f *Fixture) Count(sql string, args ...any) int {
	f.t.Helper()
	var n int
	if err := f.owner.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		f.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// Wants checks the number that a query yields, as the owner of the database.
func (f *Fixture) Wants(want int, sql string, args ...any) {
	f.t.Helper()
	if got := f.Count(sql, args...); got != want {
		f.t.Errorf("got %d, want %d: %s %v", got, want, sql, args)
	}
}

// Workspace adds a workspace with every module enabled and provisioned, and LLM integration on.
func (f *Fixture) Workspace() uuid.UUID {
	f.t.Helper()
	id := uuid.Must(uuid.NewV7())
	f.Exec("insert into account.tenants (id, organisation_id, name) values ($1, $2, $3)",
		id, f.org, "Workspace "+id.String())
	f.Exec(`insert into account.tenant_modules (tenant_id, module, enabled, provisioned)
		select $1, unnest($2::text[]), true, true`, id, perm.Modules())
	f.Exec("insert into account.tenant_features (tenant_id, feature, enabled) values ($1, 'llm_integration', true)", id)
	return id
}

// User adds a user without memberships.
func (f *Fixture) User() uuid.UUID {
	f.t.Helper()
	id := uuid.Must(uuid.NewV7())
	f.Exec("insert into account.users (id, email, name) values ($1, $2, 'A Person')", id, id.String()+"@example.org")
	return id
}

// Member makes the user a member of the workspace with exactly the given permissions.
func (f *Fixture) Member(workspaceID, user uuid.UUID, permissions ...perm.Permission) {
	f.t.Helper()
	f.Exec(`insert into account.memberships (tenant_id, user_id, permissions) values ($1, $2, $3)
		on conflict (tenant_id, user_id) do update set permissions = excluded.permissions`,
		workspaceID, user, perm.NewSet(permissions...).Strings())
}

// RemoveMember ends the membership.
func (f *Fixture) RemoveMember(workspaceID, user uuid.UUID) {
	f.t.Helper()
	f.Exec("delete from account.memberships where tenant_id = $1 and user_id = $2", workspaceID, user)
}

// PAT adds a personal access token that is valid for 30 days.
func (f *Fixture) PAT(workspaceID, user uuid.UUID, permissions ...perm.Permission) credential.Secret {
	f.t.Helper()
	secret, err := credential.PersonalAccessToken.New(rand.Reader)
	if err != nil {
		f.t.Fatal(err)
	}
	f.Exec(`insert into account.personal_access_tokens (id, hash, user_id, tenant_id, name, permissions, expires_at)
		values ($1, $2, $3, $4, 'test', $5, now() + interval '30 days')`,
		uuid.Must(uuid.NewV7()), credential.Hash(secret.Reveal()), user, workspaceID,
		perm.NewSet(permissions...).Strings())
	return secret
}

// A Grant is a consent for which tests can issue tokens.
type Grant struct {
	ID          uuid.UUID
	Kind        string // confidential, connector
	Client      uuid.UUID
	User        uuid.UUID
	WorkspaceID uuid.UUID
	Resource    string
	Permissions perm.Set
}

// Grant adds a client of the kind and an active grant of 30 days for it.
func (f *Fixture) Grant(
	kind string, workspaceID, user uuid.UUID, resource string, permissions ...perm.Permission,
) Grant {
	f.t.Helper()
	g := Grant{
		ID:          uuid.Must(uuid.NewV7()),
		Kind:        kind,
		Client:      uuid.Must(uuid.NewV7()),
		User:        user,
		WorkspaceID: workspaceID,
		Resource:    resource,
		Permissions: perm.NewSet(permissions...),
	}
	platform, clientResource, method := (*string)(nil), (*string)(nil), "client_secret_json"
	if kind == "connector" {
		claude := "claude"
		platform, clientResource, method = &claude, &resource, "none"
	}
	f.Exec(`insert into account.oauth_clients (id, kind, tenant_id, name, redirect_uris, required_permissions,
			connector_platform, resource, token_endpoint_auth_method)
		values ($1, $2, $3, 'An application', '{https://app.example/callback}', $4, $5, $6, $7)`,
		g.Client, kind, workspaceID, g.Permissions.Strings(), platform, clientResource, method)
	f.Exec(`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource, state, ends_at)
		values ($1, $2, $3, $4, $5, $6, $7, 'active', now() + interval '30 days')`,
		g.ID, kind, g.Client, user, workspaceID, g.Permissions.Strings(), resource)
	return g
}

// Programmes adds n programmes, one second apart, the last one newest. Their names are "Programme 1" to "Programme
// n".
func (f *Fixture) Programmes(workspaceID uuid.UUID, n int) []uuid.UUID {
	f.t.Helper()
	began := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	ids := make([]uuid.UUID, n)
	rows := make([][]any, n)
	for i := range rows {
		ids[i] = uuid.Must(uuid.NewV7())
		at := began.Add(time.Duration(i) * time.Second)
		rows[i] = []any{ids[i], workspaceID, fmt.Sprintf("Programme %d", i+1), "", "draft", at, at}
	}
	_, err := f.owner.CopyFrom(context.Background(), pgx.Identifier{"resource", "programmes"},
		[]string{"id", "tenant_id", "name", "summary", "status", "created_at", "updated_at"}, pgx.CopyFromRows(rows))
	if err != nil {
		f.t.Fatalf("insert programmes: %v", err)
	}
	return ids
}
