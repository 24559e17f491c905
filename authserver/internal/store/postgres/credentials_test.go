package postgres_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/credential"
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
	return audit.ByOperator().Event(audit.ClientSecretReplaced, "client:"+id.String(), nil, nil)
}

func TestReplaceSecret_ConcurrentCallsLeaveTwoSecrets(t *testing.T) {
	l := newStoreTest(t)
	app, _ := l.fixture.Confidential(perm.ProgrammesRead)
	for i := range 20 { // as an earlier release left them
		l.fixture.Exec(`insert into account.client_secrets (client_id, hash, expires_at)
			values ($1, $2, now() + interval '1 hour')`, app.ID, secretHash(1000+i))
	}
	replace := func(n int, overlap time.Duration) error {
		return l.ReplaceSecret(t.Context(), l.fixture.WorkspaceID, app.ID, secretHash(n), overlap, replaced(app.ID))
	}
	concurrently(12, func(i int) {
		wantErr(t, "replace a secret", nil, replace(i, 24*time.Hour))
		if n := l.liveSecrets(app.ID); n > 2 {
			t.Errorf("%d secrets are live", n)
		}
	})
	for i, overlap := range []time.Duration{24 * time.Hour, 24 * time.Hour, 0} {
		must(t, replace(50+i, overlap))
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

// publish stores a published signing key.
func (l *storeTest) publish(kid string) {
	l.Helper()
	l.fixture.Exec(`insert into account.signing_keys (kid, public_jwk, private_sealed, state)
		values ($1, '{}', '', 'next') on conflict do nothing`, kid)
}

// An access token with a removed key, an unknown key or no key is refused at once. Tokens of other keys and
// personal access tokens stay valid.
func TestStanding_RemovedKeyRefusesItsAccessTokens(t *testing.T) {
	l := ownStoreTest(t)
	g := l.many(1)[0]
	pat := standing.Query{PATHash: credential.Hash(l.fixture.Token(g.UserID, perm.ProgrammesRead).Reveal())}
	l.publish("stolen")
	l.publish("other")
	state := func(q standing.Query) string {
		t.Helper()
		s, err := l.Standing(t.Context(), q)
		must(t, err)
		return s.State
	}
	for _, published := range []string{"next", "current", "retired"} {
		l.fixture.Exec(`update account.signing_keys set state = $1 where kid = 'stolen'`, published)
		if got := state(granted(g, "stolen", uuid.Nil, "")); got != standing.Active {
			t.Errorf("a %s key: %s", published, got)
		}
	}
	l.fixture.Exec(`update account.signing_keys set state = 'removed' where kid = 'stolen'`)
	for _, kid := range []string{"stolen", "unknown", ""} {
		if got := state(granted(g, kid, uuid.Nil, "")); got != "key_removed" {
			t.Errorf("key %q: %s, want key_removed", kid, got)
		}
	}
	for what, q := range map[string]standing.Query{
		"another key":           granted(g, "other", uuid.Nil, ""),
		"personal access token": pat,
	} {
		if got := state(q); got != standing.Active {
			t.Errorf("%s: %s, want active", what, got)
		}
	}
	l.fixture.Exec(`update account.grants set state = 'revoked', revoked_at = now() where id = $1`, g.ID)
	if got := state(granted(g, "stolen", uuid.Nil, "")); got != "revoked" {
		t.Errorf("a revoked grant under a removed key: %s, want revoked", got)
	}
}

func TestStanding_BatchEqualsSingleQueries(t *testing.T) {
	l := newStoreTest(t)
	g := l.many(1)[0]
	token := credential.Hash(l.fixture.Token(g.UserID, perm.ProgrammesRead).Reveal())
	var questions []standing.Query
	l.publish("signing")
	l.fixture.Exec(`insert into account.tenant_modules
		values ($1, 'programmes', true, true), ($1, 'engage', false, true)
		on conflict (tenant_id, module) do update set enabled = excluded.enabled,
		provisioned = excluded.provisioned`, l.fixture.WorkspaceID)
	for _, workspaceID := range []uuid.UUID{uuid.Nil, l.fixture.WorkspaceID, l.fixture.Workspace("another")} {
		for _, module := range []string{"", "programmes", "engage"} {
			questions = append(questions, standing.Query{PATHash: token, WorkspaceID: workspaceID, Module: module},
				standing.Query{GrantID: uuid.New(), GrantIn: g.WorkspaceID, WorkspaceID: workspaceID},
				granted(g, "", workspaceID, module), granted(g, "signing", workspaceID, module),
				standing.Query{GrantID: g.ID, GrantIn: uuid.New(), WorkspaceID: workspaceID})
		}
	}
	many := func(questions []standing.Query, distributed bool) []*standing.Standing {
		t.Helper()
		sql := `select`
		if distributed { // the function detects Citus by this table
			sql = `create table account.pg_dist_partition ()`
		}
		tx := l.lock(sql)
		defer func() { _ = tx.Rollback(t.Context()) }()
		all, err := standing.ReadAll(t.Context(), tx, questions)
		must(t, err)
		return all
	}
	all := many(questions, false)
	if distributed := many(questions, true); !reflect.DeepEqual(distributed, all) {
		t.Errorf("%+v one by one, %+v in one statement", distributed, all)
	}
	l.fixture.Exec(endingOfNothing, l.fixture.WorkspaceID)
	for _, distributed := range []bool{false, true} {
		if limited := many(questions, distributed); !reflect.DeepEqual(limited, all) {
			t.Errorf("%+v during an ending that concerns none of them, %+v before", limited, all)
		}
	}
	for i, q := range questions {
		if alone := many(questions[i:i+1], false)[0]; !reflect.DeepEqual(alone, all[i]) {
			t.Errorf("%+v: %+v in a batch, %+v alone", q, all[i], alone)
		}
		if s := all[i]; s != nil && s.Member &&
			(s.ModuleEnabled != (q.Module == "programmes") || s.ModuleProvisioned != (q.Module != "")) {
			t.Errorf("%+v: %+v", q, s)
		}
	}
	if all[0] == nil || all[1] != nil || all[2] == nil || all[4] != nil {
		t.Errorf("token: %+v, unknown grant: %+v, grant: %+v, of another workspace: %+v",
			all[0], all[1], all[2], all[4])
	}
}

// granted returns a query about an access token of a grant.
func granted(g grant.Grant, kid string, workspaceID uuid.UUID, module string) standing.Query {
	return standing.Query{GrantID: g.ID, GrantIn: g.WorkspaceID, KeyID: kid, WorkspaceID: workspaceID, Module: module}
}

// Every standing equals the result of the first version of the rules, which programs older than
// account.standings use. The function they call and the function it calls are both compared.
func TestStanding_EqualsFirstVersionOfRules(t *testing.T) {
	l := ownStoreTest(t)
	g := l.many(1)[0]
	hash := credential.Hash(l.fixture.Token(g.UserID, perm.ProgrammesRead).Reveal())
	first, err := os.ReadFile("testdata/first_standing.sql")
	must(t, err)
	l.fixture.Exec(string(first))
	l.fixture.Exec(`insert into account.tenant_modules
		values ($1, 'programmes', true, true), ($1, 'engage', false, true)
		on conflict (tenant_id, module) do update set enabled = excluded.enabled`, l.fixture.WorkspaceID)
	l.publish("signing")
	other := l.fixture.Workspace("another")
	const compare = `
with asked as (
  select pat, id, tenant, module
  from unnest(array[$1::bytea, null, 'unknown']) pat, unnest(array[$2::uuid, null, gen_random_uuid()]) id,
  unnest(array[$3::uuid, null, $4, gen_random_uuid()]) tenant,
    unnest(array['programmes', 'engage', '', null]) module
  where $5 or (pat = $1 or pat is null) and (id = $2 or id is null) and (pat is not null or id is not null)
    and (module = 'programmes' or module is null)
), arrays as (
  select array_agg(pat) pats, array_agg(id) ids, array_agg(tenant) tenants, array_agg(module) modules from asked
), together as materialized (
  select s.place, to_jsonb(s) - 'place' answer from arrays, account.standings(pats, ids, tenants, modules) s
), answers as materialized (
  select (select to_jsonb(s) from account.first_standing(pat, id, tenant, module) s) first,
    (select to_jsonb(s) from account.standing(pat, id, tenant, module) s) earlier,
    (select to_jsonb(s) - 'place' from account.standings(array[pat], array[id], array[tenant], array[module]) s) alone,
    (select to_jsonb(s) - 'place' - 'replaces'
      from account.standings(array[pat], array[id], array[tenant], array[module], array[null]) s) without_key,
    (select to_jsonb(s) - 'place' - 'replaces'
      from account.standings(array[pat], array[id], array[tenant], array[module], array['signing']) s) with_key,
    (select to_jsonb(s) - 'place' - 'replaces' from account.standings(array[pat], array[id], array[$3], array[tenant],
      array[module], array['signing']) s) located,
    (select to_jsonb(s) - 'place' - 'replaces' from account.standings(array[pat, pat], array[id, id], array[$3, $3],
      array[tenant, tenant], array[module, module], array['signing', null]) s where s.place = 2) located_among,
    (select answer from together where together.place = asked.place) among
  from arrays, unnest(pats, ids, tenants, modules) with ordinality asked (pat, id, tenant, module, place)
)
select count(first), coalesce(jsonb_agg(to_jsonb(answers)) filter (
  where (first, first, first, first, first, first, first) is distinct from
    (earlier, alone, among, without_key, with_key, located, located_among)
), '[]')::text from answers`
	const ofTokens, ofGrants = "update account.personal_access_tokens set ", "update account.grants set "
	states := []string{
		ofGrants + "state = 'active', revoked_at = null, revoke_reason = null",
		ofGrants + "state = 'pending'",
		ofGrants + "state = 'revoked', revoked_at = now(), revoke_reason = 'revoked'",
	}
	switches := [][2]string{
		{ofTokens + "revoked_at = null", ofTokens + "revoked_at = now()"},
		{
			ofTokens + "created_at = now(), expires_at = now() + interval '1 day'",
			ofTokens + "created_at = now() - interval '2 days', expires_at = now() - interval '1 day'",
		},
		{ofGrants + "ends_at = now() + interval '1 day'", ofGrants + "ends_at = now() - interval '1 day'"},
		{"update account.users set disabled_at = null", "update account.users set disabled_at = now()"},
		{
			"update account.memberships set permissions = '{programmes:read:programmes}'",
			"delete from account.memberships",
		},
	}
	for turned := range 1 << len(switches) { // the memberships end for good halfway
		for i, way := range switches {
			l.fixture.Exec(way[turned>>i&1])
		}
		for _, state := range states {
			l.fixture.Exec(state)
			var answers int
			var differ string
			unknown, want := turned == 0, 24 // what is unknown is asked about once
			if unknown {
				want = 64
			}
			err := l.fixture.Owner.QueryRow(t.Context(), compare, hash, g.ID, l.fixture.WorkspaceID, other, unknown).
				Scan(&answers, &differ)
			if err != nil || answers != want || differ != "[]" {
				t.Fatalf("%s, %b: %d answers, differences %s: %v", state, turned, answers, differ, err)
			}
		}
	}
}
