package postgres_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
)

// An earlier release records uses without the workspaces of the tokens.
func TestTokenUses_PreviousReleaseRecordsOnNewSchema(t *testing.T) {
	l := newStoreTest(t)
	const tokens = 3
	for range tokens {
		l.fixture.Token(l.grant.UserID, perm.ProgrammesRead)
	}
	const recorded = `select count(*) from account.personal_access_tokens p join account.token_uses u
		on u.tenant_id = p.tenant_id and u.token_id = p.id and u.used_at = p.last_used_at where p.tenant_id = $1`
	l.wantCount(0, "uses before the first", recorded, l.fixture.WorkspaceID)
	ids := l.texts(`select id::text from account.personal_access_tokens where tenant_id = $1`, l.fixture.WorkspaceID)
	service := connect(t, l.fixture.Database.Authserver)
	must(t, errOf(service.Exec(t.Context(), `select account.note_use($1::uuid[], '{}', '{}')`, ids)))
	l.wantCount(tokens, "uses at the previous release", recorded, l.fixture.WorkspaceID)
}

// The last use of a token in its workspace is recorded at most once an hour, and is deleted with the token.
func TestTokenUses_AreThoseOfWorkspace(t *testing.T) {
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

func (l *storeTest) liveSecrets(id uuid.UUID) int {
	l.Helper()
	return l.count(`select count(*) from account.client_secrets where client_id = $1
		and (expires_at is null or expires_at > now())`, id)
}

// secretHash returns the n-th of distinct hashes.
func secretHash(n int) []byte {
	return binary.BigEndian.AppendUint64(bytes.Repeat([]byte{7}, 24), uint64(n))
}

func replaced(id uuid.UUID) audit.Event {
	return audit.Event{
		Actor: "test", Action: audit.ClientSecretReplaced, Subject: "client:" + id.String(), Authorization: operator,
	}
}

func TestReplaceSecret_ConcurrentCallsLeaveTwoSecrets(t *testing.T) {
	l := newStoreTest(t)
	app, _ := l.fixture.Confidential(perm.ProgrammesRead)
	for i := range 20 { // as an earlier release left them
		l.fixture.Exec(
			`insert into account.client_secrets (client_id, hash, expires_at)
				values ($1, $2, now() + interval '1 hour')`,
			app.ID,
			secretHash(1000+i),
		)
	}
	concurrently(12, func(i int) {
		in, event := l.fixture.WorkspaceID, replaced(app.ID)
		err := l.ReplaceSecret(t.Context(), in, app.ID, secretHash(i), 24*time.Hour, event)
		wantErr(t, "replace a secret", nil, err)
		if n := l.liveSecrets(app.ID); n > 2 {
			t.Errorf("%d secrets are live", n)
		}
	})
	for i, overlap := range []time.Duration{24 * time.Hour, 24 * time.Hour, 0} {
		err := l.ReplaceSecret(
			t.Context(), l.fixture.WorkspaceID, app.ID, secretHash(50+i), overlap, replaced(app.ID))
		must(t, err)
		for hash, lives := range map[int]bool{50 + i: true, 49 + i: i > 0 && overlap > 0, 48 + i: false} {
			c, err := l.ClientWithSecret(t.Context(), app.ID, secretHash(hash))
			if err != nil || (len(c.Secrets) == 1) != lives {
				t.Errorf("after replacement %d, secret %d: %d found %v", i, hash, len(c.Secrets), err)
			}
		}
	}
	if n := l.liveSecrets(app.ID); n != 1 {
		t.Errorf("%d secrets are live after the old ones were ended", n)
	}
}

// A client with thousands of live secrets costs a shared statement no more than any other client: it reads
// only the hash that was presented.
func TestSharedStatements_ReadOnlyPresentedSecret(t *testing.T) {
	l := newStoreTest(t)
	app, _ := l.fixture.Confidential(perm.ProgrammesRead)
	l.fixture.Exec(`insert into account.client_secrets (client_id, hash)
		select $1, sha256(n::text::bytea) from generate_series(1, 6000) n`, app.ID)
	good := secretHash(1)
	l.fixture.Exec(`insert into account.client_secrets (client_id, hash) values ($1, $2)`, app.ID, good)
	l.fixture.Exec(`insert into account.client_secrets (client_id, hash, expires_at) values ($1, $2, now())`, app.ID,
		secretHash(2))
	concurrently(64, func(i int) {
		presented := [][]byte{good, secretHash(2), secretHash(3), nil}[i%4]
		check := func(how string, found [][]byte, err error) {
			if want := i%4 == 0; err != nil || (len(found) == 1) != want || (want && !bytes.Equal(found[0], good)) {
				t.Errorf("%s with %x: %d hashes were read, %v", how, presented, len(found), err)
			}
		}
		snapshot, err := l.Store.Snapshot(t.Context(), app.ID, l.grant.Key(), presented)
		check("snapshot", snapshot.Client.Secrets, err)
		caller, _, _, err := l.Introspection(t.Context(), app.ID, presented, standing.Query{GrantID: l.grant.ID})
		check("introspection", caller.Secrets, err)
		c, err := l.ClientWithSecret(t.Context(), app.ID, presented)
		check("client", c.Secrets, err)
	})
	snapshot, err := l.Snapshot(t.Context(), app.ID, grant.Key{})
	if err != nil || snapshot.Client.Secrets != nil {
		t.Errorf("snapshot without a secret: %d hashes, %v", len(snapshot.Client.Secrets), err)
	}
	if c, err := l.RecentClient(t.Context(), app.ID); err != nil || len(c.Secrets) != 2 {
		t.Errorf("recent client: %d hashes, %v", len(c.Secrets), err)
	}
	all, err := l.Store.Clients.Clients(t.Context(), l.fixture.WorkspaceID)
	must(t, err)
	for _, c := range all {
		if len(c.Secrets) != 0 {
			t.Errorf("list read %d hashes", len(c.Secrets))
		}
	}
}
