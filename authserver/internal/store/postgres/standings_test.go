package postgres_test

import (
	"os"
	"reflect"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// publish stores a published signing key.
func (l *storeTest) publish(kid string) {
	l.Helper()
	l.fixture.Exec(
		`insert into account.signing_keys (kid, public_jwk, private_sealed, state) values ($1, '{}', '', 'next')
			on conflict do nothing`,
		kid,
	)
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
		rows, err := tx.Query(t.Context(), standing.SQL, standing.Args(questions)...)
		must(t, err)
		all, err := standing.Scan(rows, len(questions))
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
	return standing.Query{
		GrantID:     g.ID,
		GrantIn:     g.WorkspaceID,
		KeyID:       kid,
		WorkspaceID: workspaceID,
		Module:      module,
	}
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
	states := []string{
		"update account.grants set state = 'active', revoked_at = null, revoke_reason = null",
		"update account.grants set state = 'pending'",
		"update account.grants set state = 'revoked', revoked_at = now(), revoke_reason = 'revoked'",
	}
	switches := [][2]string{
		{
			"update account.personal_access_tokens set revoked_at = null",
			"update account.personal_access_tokens set revoked_at = now()",
		},
		{
			"update account.personal_access_tokens set created_at = now(), expires_at = now() + interval '1 day'",
			"update account.personal_access_tokens set created_at = now() - interval '2 days', expires_at = now() - " +
				"interval '1 day'",
		},
		{
			"update account.grants set ends_at = now() + interval '1 day'",
			"update account.grants set ends_at = now() - interval '1 day'",
		},
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
