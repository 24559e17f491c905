package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/perm"
	"github.com/almonerhq/almoner/shared/standing"
)

// many opens and activates n grants of n clients.
func (l *storeTest) many(n int) []grant.Grant {
	l.Helper()
	all := make([]grant.Grant, n)
	for i := range all {
		app := l.fixture.Connector(l.grant.Resource, perm.ProgrammesRead)
		g := l.grant
		g.ID, g.ClientID = uuid.New(), app.ID
		l.wantState(grant.Pending)(l.approve(l.Context(), g))
		l.wantResult(grant.Updated)(l.activate(l.Context(), g.ID, 11))
		all[i] = g
	}
	return all
}

// hold locks the row of a grant until release is called.
func (l *storeTest) hold(id uuid.UUID) (release func()) {
	l.Helper()
	holder, err := l.fixture.Owner.Begin(l.Context())
	if err == nil {
		_, err = holder.Exec(l.Context(), `select id from account.grants where id = $1 for update`, id)
	}
	if err != nil {
		l.Fatal(err)
	}
	return func() {
		l.Helper()
		if err := holder.Rollback(l.Context()); err != nil {
			l.Fatal(err)
		}
	}
}

func concurrently(n int, work func(int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { work(i) })
	}
	all.Wait()
}

// Concurrent queries return each caller its own grant and client.
func TestSnapshot_ConcurrentCallsReturnOwnGrantAndClient(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	grants := l.many(24)
	concurrently(len(grants)*4, func(i int) {
		own := grants[i%len(grants)]
		for round := range 20 {
			id := own.ID
			if round%4 == 3 {
				id = uuid.Nil
			}
			snapshot, err := l.Snapshot(t.Context(), own.ClientID, l.key(id))
			if err != nil || snapshot.Client.ID != own.ClientID || (snapshot.Grant == nil) != (id == uuid.Nil) ||
				(snapshot.Grant != nil && snapshot.Grant.ID != own.ID) {
				t.Errorf("queried %s, got %+v %v", own.ID, snapshot, err)
			}
		}
	})
}

func TestIntrospection_ConcurrentCallsReturnOwnResult(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	grants := l.many(12)
	tokens := make([][]byte, len(grants))
	for i := range tokens {
		tokens[i] = credential.Hash(
			l.fixture.Token(l.fixture.Member(perm.ProgrammesRead), perm.ProgrammesRead).Reveal())
	}
	l.publish("signing")
	owners := make([]uuid.UUID, len(tokens))
	for i, token := range tokens {
		_, known, _, err := l.Introspection(t.Context(), uuid.Nil, nil, standing.Query{PATHash: token})
		if err != nil || known == nil {
			t.Fatal(known, err)
		}
		owners[i] = known.UserID
	}
	concurrently(len(grants)*4, func(i int) {
		own, token, owner := grants[i%len(grants)], tokens[i%len(grants)], owners[i%len(grants)]
		for round := range 20 {
			q := standing.Query{GrantID: own.ID, GrantIn: own.WorkspaceID, KeyID: "signing"}
			switch round % 4 {
			case 1:
				q = standing.Query{PATHash: token}
			case 2:
				q.GrantID = uuid.New()
			}
			caller, known, issued, err := l.Introspection(t.Context(), own.ClientID, nil, q)
			right := err == nil && caller != nil && caller.ID == own.ClientID
			switch {
			case q.PATHash != nil:
				right = right && known != nil && known.UserID == owner && !issued.IsZero()
			case q.GrantID == own.ID:
				right = right && known != nil && known.CredentialID == own.ID && known.State == standing.Active &&
					issued.IsZero()
			default:
				right = right && known == nil && issued.IsZero()
			}
			if !right {
				t.Errorf("%s queried %+v, got %+v %+v %s %v", own.ClientID, q, caller, known, issued, err)
			}
		}
	})
	if caller, known, _, err := l.Introspection(t.Context(), uuid.New(), nil, standing.Query{
		GrantID: grants[0].ID,
		GrantIn: grants[0].WorkspaceID,
	}); err != nil ||
		caller != nil ||
		known == nil {
		t.Errorf("unknown caller: %+v %+v %v", caller, known, err)
	}
}

func TestAdvance_ConcurrentGrantsAdvanceIndependently(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	grants := l.many(24)
	const last = 40
	concurrently(len(grants), func(i int) {
		own := byte(100 + i)
		for generation := uint32(2); generation <= last; generation++ {
			switch result, err := l.advance(t.Context(), grants[i].ID, generation, hash(own)); {
			case err != nil || result != grant.Updated:
				t.Errorf("generation %d: %v %v", generation, result, err)
			case generation%5 == 0:
				l.wantResult(grant.Refused)(l.advance(t.Context(), grants[i].ID, generation, hash(own+100)))
				l.wantResult(grant.Refused)(l.advance(t.Context(), grants[i].ID, generation-1, hash(own)))
				l.wantResult(grant.Refused)(l.activate(t.Context(), grants[i].ID, own))
				l.wantResult(grant.Refused)(l.advance(t.Context(), uuid.New(), generation, hash(own)))
			}
		}
	})
	for i, g := range grants {
		stored, err := l.Grant(t.Context(), g.Key())
		if err != nil || stored.Generation != last || !bytes.Equal(stored.RefreshHash, hash(byte(100+i))) {
			t.Errorf("%+v %v", stored, err)
		}
	}
}

// Two processes, or a retry that overtakes, may write two steps of one grant at once: the later generation
// wins.
func TestAdvance_LaterOfTwoConcurrentStepsWins(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	one := l.many(1)[0]
	for generation := uint32(2); generation < 200; generation += 4 {
		results := make([]grant.UpdateResult, 4)
		concurrently(len(results), func(i int) {
			var err error
			if results[i], err = l.advance(t.Context(), one.ID, generation+uint32(i), hash(byte(i))); err != nil {
				t.Error(err)
			}
		})
		stored, err := l.Grant(t.Context(), one.Key())
		if err != nil || results[3] != grant.Updated || stored.Generation != generation+3 ||
			!bytes.Equal(stored.RefreshHash, hash(3)) {
			t.Errorf("%v, stored generation %d, want %d: %v", results, stored.Generation, generation+3, err)
		}
	}
}

func TestAdvance_LockedGrantDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	grants := l.many(12)
	held := grants[0]
	release := l.hold(held.ID)
	concurrently(len(grants), func(i int) {
		if i == 0 {
			if _, err := l.advance(t.Context(), held.ID, 2, hash(2)); !errors.Is(err, grant.ErrNotCommitted) {
				t.Errorf("locked grant: %v", err)
			}
			return
		}
		for generation := uint32(2); generation < 40; generation++ {
			l.wantResult(grant.Updated)(l.advance(t.Context(), grants[i].ID, generation, hash(2)))
		}
	})
	release()
	l.wantResult(grant.Updated)(l.advance(t.Context(), held.ID, 2, hash(2)))
}

// A statement that was never sent is certainly not committed, so the rotation can be undone (G8). This holds
// if no connection became free, and if the remaining time would end during the statement.
func TestG8_UnsentStepIsNotCommitted(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	one := l.many(1)[0]
	release, err := l.TakeAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	concurrently(4, func(int) {
		if _, err := l.advance(t.Context(), one.ID, 2, hash(2)); !errors.Is(err, store.ErrUnavailable) ||
			!errors.Is(err, grant.ErrNotCommitted) {
			t.Errorf("without a connection: %v", err)
		}
	})
	release()
	release = l.hold(one.ID)
	soon, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // less than Postgres waits for a lock
	defer cancel()
	if _, err := l.advance(soon, one.ID, 2, hash(2)); !errors.Is(err, store.ErrUnavailable) ||
		!errors.Is(err, grant.ErrNotCommitted) {
		t.Errorf("with little time left: %v", err)
	}
	release()
	l.wantResult(grant.Updated)(l.advance(t.Context(), one.ID, 2, hash(2)))
}

// A batch of queries returns the same results as each query alone.
func TestStanding_BatchEqualsSingleQueries(t *testing.T) {
	t.Parallel()
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
			questions = append(
				questions,
				standing.Query{PATHash: token, WorkspaceID: workspaceID, Module: module},
				standing.Query{
					GrantID:     uuid.New(),
					GrantIn:     g.WorkspaceID,
					WorkspaceID: workspaceID,
				},
				granted(g, "", workspaceID, module),
				granted(g, "signing", workspaceID, module),
				standing.Query{GrantID: g.ID, GrantIn: uuid.New(), WorkspaceID: workspaceID},
			)
		}
	}
	many := func(questions []standing.Query, distributed bool) []*standing.Standing {
		t.Helper()
		tx, err := l.fixture.Owner.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(t.Context()) }()
		if distributed { // the function detects Citus by this table
			if _, err := tx.Exec(t.Context(), `create table account.pg_dist_partition ()`); err != nil {
				t.Fatal(err)
			}
		}
		rows, err := tx.Query(t.Context(), standing.SQL, standing.Args(questions)...)
		if err != nil {
			t.Fatal(err)
		}
		all, err := standing.Scan(rows, len(questions))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	all := many(questions, false)
	if distributed := many(questions, true); !reflect.DeepEqual(distributed, all) {
		t.Errorf("%+v one by one, %+v in one statement", distributed, all)
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
	t.Parallel()
	l := newStoreTest(t)
	g := l.many(1)[0]
	hash := credential.Hash(l.fixture.Token(g.UserID, perm.ProgrammesRead).Reveal())
	first, err := postgres.Migrations.ReadFile("migrations/00001_account.sql")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(first), "create function account.standing(")
	text, _, found := strings.Cut(text, "\n$$;\n")
	if !found {
		t.Fatal("the first migration does not define account.standing")
	}
	l.fixture.Exec("create function account.first_standing(" + text + "\n$$")
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
), arrays as (
  select array_agg(pat) pats, array_agg(id) ids, array_agg(tenant) tenants, array_agg(module) modules from asked
), together as materialized (
  select s.place, to_jsonb(s) - 'place' answer from arrays, account.standings(pats, ids, tenants, modules) s
), answers as (
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
			err := l.fixture.Owner.QueryRow(t.Context(), compare, hash, g.ID, l.fixture.WorkspaceID, other).
				Scan(&answers, &differ)
			if err != nil ||
				answers != 64 ||
				differ != "[]" {
				t.Fatalf("%s, %b: %d answers, differences %s: %v", state, turned, answers, differ, err)
			}
		}
	}
}
