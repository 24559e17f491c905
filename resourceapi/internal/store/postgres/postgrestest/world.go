// Package postgrestest provides tests with a fresh database and its account rows.
//
// A World is a new database with the account rows that the tests of this service need. It stands in for the
// authorization server, which owns these tables, by inserting as the owner of the database. No two tests share a
// World.
package postgrestest

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/perm"
)

// A World is the database of one test.
type World struct {
	Database testkit.Database
	t        testing.TB
	owner    *pgx.Conn
	org      uuid.UUID
}

// KeyID identifies the published signing key of a World.
const KeyID = "key-1"

// New creates a World with only an organisation and a published signing key.
func New(t testing.TB) *World {
	t.Helper()
	database := testkit.NewDatabase(t)
	owner, err := pgx.Connect(context.Background(), database.Owner)
	if err != nil {
		t.Fatalf("connect as the owner: %v", err)
	}
	t.Cleanup(func() { _ = owner.Close(context.Background()) })
	w := &World{Database: database, t: t, owner: owner, org: identity.New()}
	w.Exec("insert into account.organisations (id, name) values ($1, 'Harbour Trust')", w.org)
	w.Exec(
		"insert into account.signing_keys (kid, public_jwk, private_sealed, state) values ($1, '{}', '', 'current')",
		KeyID,
	)
	return w
}

// Exec runs a statement as the owner of the database.
func (w *World) Exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.owner.Exec(context.Background(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

// Count returns the number that a query yields, as the owner of the database.
func (w *World) Count(sql string, args ...any) int {
	w.t.Helper()
	var n int
	if err := w.owner.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// EndSessions terminates the sessions of the application in this database, as a server shutdown would.
func (w *World) EndSessions(application string) {
	w.t.Helper()
	superuser, err := pgx.Connect(context.Background(), w.Database.Superuser)
	if err != nil {
		w.t.Fatal("connect as the superuser")
	}
	defer func() { _ = superuser.Close(context.Background()) }()
	tag, err := superuser.Exec(
		context.Background(),
		"select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and "+
			"application_name = $1",
		application,
	)
	if err != nil || tag.RowsAffected() == 0 {
		w.t.Fatalf("%d sessions ended: %v", tag.RowsAffected(), err)
	}
}

// Workspace adds a workspace with Programmes enabled and provisioned, and LLM integration on.
func (w *World) Workspace() uuid.UUID {
	w.t.Helper()
	id := identity.New()
	w.Exec(
		"insert into account.tenants (id, organisation_id, name) values ($1, $2, $3)",
		id,
		w.org,
		"Workspace "+id.String(),
	)
	w.Exec(
		"insert into account.tenant_modules (tenant_id, module, enabled, provisioned) values ($1, 'programmes', "+
			"true, true)",
		id,
	)
	w.Exec("insert into account.tenant_features (tenant_id, feature, enabled) values ($1, 'llm_integration', true)", id)
	return id
}

// User adds a user without memberships.
func (w *World) User() uuid.UUID {
	w.t.Helper()
	id := identity.New()
	w.Exec("insert into account.users (id, email, name) values ($1, $2, 'A Person')", id, id.String()+"@example.org")
	return id
}

// Member makes the user a member of the workspace with exactly the given permissions.
func (w *World) Member(workspaceID, user uuid.UUID, held ...perm.Permission) {
	w.t.Helper()
	w.Exec(`insert into account.memberships (tenant_id, user_id, permissions) values ($1, $2, $3)
		on conflict (tenant_id, user_id) do update set permissions = excluded.permissions`,
		workspaceID, user, perm.NewSet(held...).Strings())
}

// Leave ends the membership.
func (w *World) Leave(workspaceID, user uuid.UUID) {
	w.t.Helper()
	w.Exec("delete from account.memberships where tenant_id = $1 and user_id = $2", workspaceID, user)
}

// PAT adds a personal access token that is valid for 30 days.
func (w *World) PAT(workspaceID, user uuid.UUID, given ...perm.Permission) credential.Secret {
	w.t.Helper()
	secret, err := credential.PersonalAccessToken.New(rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Exec(`insert into account.personal_access_tokens (id, hash, user_id, tenant_id, name, permissions, expires_at)
		values ($1, $2, $3, $4, 'test', $5, now() + interval '30 days')`,
		identity.New(), credential.Hash(secret.Reveal()), user, workspaceID, perm.NewSet(given...).Strings())
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
	Given       perm.Set
}

// Grant adds a client of the kind and an active grant of 30 days for it.
func (w *World) Grant(kind string, workspaceID, user uuid.UUID, resource string, given ...perm.Permission) Grant {
	w.t.Helper()
	g := Grant{
		ID:          identity.New(),
		Kind:        kind,
		Client:      identity.New(),
		User:        user,
		WorkspaceID: workspaceID,
		Resource:    resource,
		Given:       perm.NewSet(given...),
	}
	platform, clientResource, method := (*string)(nil), (*string)(nil), "client_secret_json"
	if kind == "connector" {
		claude := "claude"
		platform, clientResource, method = &claude, &resource, "none"
	}
	w.Exec(
		`insert into account.oauth_clients (id, kind, tenant_id, name, redirect_uris, required_permissions,
			connector_platform, resource, token_endpoint_auth_method)
		values ($1, $2, $3, 'An application', '{https://app.example/callback}', $4, $5, $6, $7)`,
		g.Client,
		kind,
		workspaceID,
		g.Given.Strings(),
		platform,
		clientResource,
		method,
	)
	w.Exec(`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource, state, ends_at)
		values ($1, $2, $3, $4, $5, $6, $7, 'active', now() + interval '30 days')`,
		g.ID, kind, g.Client, user, workspaceID, g.Given.Strings(), resource)
	return g
}

// Programmes adds n programmes, one second apart, the last one newest. Their names are "Programme 1" to "Programme
// n".
func (w *World) Programmes(workspaceID uuid.UUID, n int) []uuid.UUID {
	w.t.Helper()
	began := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	ids := make([]uuid.UUID, n)
	rows := make([][]any, n)
	for i := range rows {
		ids[i] = identity.New()
		at := began.Add(time.Duration(i) * time.Second)
		rows[i] = []any{ids[i], workspaceID, fmt.Sprintf("Programme %d", i+1), "", "draft", at, at}
	}
	_, err := w.owner.CopyFrom(context.Background(), pgx.Identifier{"resource", "programmes"},
		[]string{"id", "tenant_id", "name", "summary", "status", "created_at", "updated_at"}, pgx.CopyFromRows(rows))
	if err != nil {
		w.t.Fatalf("insert programmes: %v", err)
	}
	return ids
}
