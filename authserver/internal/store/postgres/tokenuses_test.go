package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// An earlier release records uses without the workspaces of the tokens.
func TestTokenUses_PreviousReleaseRecordsOnNewSchema(t *testing.T) {
	t.Parallel()
	database := testkit.NewDatabase(t)
	owner, err := pgx.Connect(t.Context(), database.Owner)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = owner.Close(context.WithoutCancel(t.Context())) }()
	const tokens = 3
	_, err = owner.Exec(t.Context(), `
		with o as (insert into account.organisations (id, name) values (gen_random_uuid(), 'x') returning id),
			w as (insert into account.tenants (id, organisation_id, name) select gen_random_uuid(), id, 'x' from o
				returning id),
			u as (insert into account.users (id, email, name) values (gen_random_uuid(), 'x@y.z', 'x') returning id)
		insert into account.personal_access_tokens (id, hash, user_id, tenant_id, name, permissions, expires_at)
		select gen_random_uuid(), sha256(n::text::bytea), u.id, w.id, 'x', '{}', now() + interval '1 day'
		from w, u, generate_series(1, $1::integer) n`, tokens)
	if err != nil {
		t.Fatal(err)
	}
	recorded := func(what string, want int) {
		t.Helper()
		var same int
		err := owner.QueryRow(t.Context(), `select count(*) from account.personal_access_tokens p
			join account.token_uses u
				on u.tenant_id = p.tenant_id and u.token_id = p.id and u.used_at = p.last_used_at`).
			Scan(&same)
		if err != nil || same != want {
			t.Errorf("%s: %d uses, want %d: %v", what, same, want, err)
		}
	}
	recorded("before the first use", 0)
	service, err := pgx.Connect(t.Context(), database.Authserver)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = service.Close(context.WithoutCancel(t.Context())) }()
	var ids []uuid.UUID
	if err := owner.QueryRow(t.Context(), `select array_agg(id) from account.personal_access_tokens`).
		Scan(&ids); err != nil {
		t.Fatal(err)
	}
	if _, err := service.Exec(t.Context(), `select account.note_use($1, '{}', '{}')`, ids); err != nil {
		t.Fatal(err)
	}
	recorded("after uses at the previous release", tokens)
}

// The last use of a token in its workspace is recorded at most once an hour, and is deleted with the token.
func TestTokenUses_AreThoseOfWorkspace(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	ctx := t.Context()
	user, workspaceID := l.fixture.Member(perm.ProgrammesRead), l.fixture.WorkspaceID
	l.fixture.Token(user, perm.ProgrammesRead)
	tokens, err := l.Tokens(ctx, user, workspaceID)
	if err != nil || len(tokens) != 1 || tokens[0].LastUsed != nil {
		t.Fatalf("%+v %v", tokens, err)
	}
	id := tokens[0].ID
	used := func(workspaceID uuid.UUID) { // as at the previous use, but for the time
		l.fixture.Exec(`select account.note_use($1, $2, '{}', '{}')`, []uuid.UUID{id}, []uuid.UUID{workspaceID})
	}
	lastUse := func() *time.Time {
		t.Helper()
		listed, err := l.Tokens(ctx, user, workspaceID)
		if err != nil || len(listed) != 1 {
			t.Fatalf("%+v %v", listed, err)
		}
		active, err := l.ActiveTokens(ctx, user)
		if err != nil || len(active) != 1 || (active[0].LastUsed == nil) != (listed[0].LastUsed == nil) {
			t.Fatalf("%+v %v", active, err)
		}
		return listed[0].LastUsed
	}
	used(l.fixture.Workspace("Elsewhere"))
	if at := lastUse(); at != nil {
		t.Errorf("last used at %s, in another workspace", at)
	}
	used(workspaceID)
	first := lastUse()
	if first == nil {
		t.Fatal("the use is not recorded")
	}
	used(workspaceID)
	if at := lastUse(); !at.Equal(*first) {
		t.Errorf("a use within the hour was recorded: %s, before %s", at, first)
	}
	l.fixture.Exec(`update account.token_uses set used_at = now() - interval '61 minutes' where token_id = $1`, id)
	used(workspaceID)
	if at := lastUse(); time.Since(*at) > time.Minute {
		t.Errorf("a use an hour later was not recorded: %s", at)
	}
	l.fixture.Exec(`delete from account.personal_access_tokens where id = $1`, id)
	l.wantCount(0, "uses of a deleted token", `select count(*) from account.token_uses where token_id = $1`, id)
}
