package postgres_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/usage"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// The overview has the credentials that are older than a week and did nothing in the last 30 days, page by page, and
// those that end within 14 days.
func TestOverview_SelectsIdleAndExpiringCredentials(t *testing.T) {
	l := newStoreTest(t)
	user := l.fixture.Member(perm.ProgrammesRead)
	const daily = `insert into account.usage (tenant_id, credential_id, day, operation, kind, user_id, requests)
		values ($1, $2, (now() at time zone 'UTC')::date - $3::int, 'listProgrammes', 'personal_access_token', $4, 1)`
	// token stores a token, and what it did these days ago; 0 is never.
	token := func(age, usedBefore, counted, endsIn int) (id uuid.UUID) {
		l.fixture.Token(user, perm.ProgrammesRead)
		must(l, l.fixture.Owner.QueryRow(l.Context(), `update account.personal_access_tokens
			set created_at = now() - make_interval(days => $2), expires_at = now() + make_interval(days => $3)
			where id = (select id from account.personal_access_tokens where user_id = $1
				order by created_at desc limit 1) returning id`, user, age, endsIn).Scan(&id))
		if usedBefore > 0 {
			l.fixture.Exec(`insert into account.token_uses (tenant_id, token_id, used_at)
				values ($1, $2, now() - make_interval(days => $3))`, l.fixture.WorkspaceID, id, usedBefore)
		}
		if counted > 0 {
			l.fixture.Exec(daily, l.fixture.WorkspaceID, id, counted, user)
		}
		return id
	}
	idle := []uuid.UUID{token(8, 0, 0, 60), token(40, 31, 30, 60), token(50, 0, 0, 13)}
	token(6, 0, 0, 60)           // new
	busy := token(41, 28, 0, 15) // used
	token(42, 0, 29, 60)         // counted
	ended := token(43, 0, 0, -1) // expired
	soon := token(1, 0, 0, 10)   // new, and ends first
	overviews := usage.Overviews{Store: l.Store.Grants, Now: time.Now}
	by := audit.Actor{WorkspaceID: l.fixture.WorkspaceID, Permissions: perm.NewSet(perm.AccountReadMembers)}
	ids := func(found usage.List, err error) (out []uuid.UUID) {
		must(l, err)
		for _, c := range found.Credentials {
			out = append(out, c.ID)
		}
		return out
	}
	var found []uuid.UUID
	for before := (audit.Cursor{}); len(found) < 9; {
		page, err := overviews.Idle(l.Context(), by, before, 1)
		found = append(found, ids(page, err)...)
		if before = page.Next; before.At.IsZero() {
			break
		}
	}
	if !slices.Equal(found, idle) {
		t.Errorf("idle are %v, want %v", found, idle)
	}
	chosen, err := overviews.StillIdle(l.Context(), by, []uuid.UUID{idle[1], busy, ended})
	if got := ids(usage.List{Credentials: chosen}, err); !slices.Equal(got, idle[1:2]) {
		t.Errorf("of the chosen ones these are idle: %v", got)
	}
	if got := ids(overviews.Expiring(l.Context(), by, 30, 9)); !slices.Equal(got, []uuid.UUID{soon, idle[2]}) {
		t.Errorf("expiring are %v, want %v", got, []uuid.UUID{soon, idle[2]})
	}
	by.Permissions, by.UserID = nil, uuid.New() // another member, who sees only their own
	if got := ids(overviews.Busiest(l.Context(), by, 9)); len(got) != 0 {
		t.Errorf("another member sees %v", got)
	}
	by.UserID = user
	if got := ids(overviews.Busiest(l.Context(), by, 9)); len(got) != 1 {
		t.Errorf("busiest are %v", got)
	}
}

// However many connections a workspace has, a list looks at a number of them, and says so: the latest that can be idle,
// and then the next ones, and the earliest that can end soon.
func TestOverview_LooksAtBoundedNumber(t *testing.T) {
	l := newStoreTest(t)
	user, app := l.fixture.Member(perm.ProgrammesRead), l.fixture.Connector("https://api.example.org/mcp")
	// connections stores n of them, the youngest of this age, each a second older than the one before.
	connections := func(n, age, endsIn int, lastUsed string) uuid.UUID {
		first := uuid.New()
		l.fixture.Exec(`insert into account.grants (id, kind, client_id, user_id, tenant_id, permissions, resource,
			state, generation, created_at, last_used_at, ends_at)
			select case when n = 1 then $1::uuid else gen_random_uuid() end, 'connector', $2, $3, $4, '{}', 'x',
				'active', 1, now() - make_interval(days => $6, secs => n), `+lastUsed+`,
				now() + make_interval(days => $7)
			from generate_series(1, $5) n`, first, app.ID, user, l.fixture.WorkspaceID, n, age, endsIn)
		return first
	}
	overviews := usage.Overviews{Store: l.Store.Grants, Now: time.Now}
	by := audit.Actor{WorkspaceID: l.fixture.WorkspaceID, Permissions: perm.NewSet(perm.AccountReadMembers)}
	wants := func(what string, partial bool, want ...uuid.UUID) func(usage.List, error) usage.List {
		return func(found usage.List, err error) usage.List {
			t.Helper()
			must(l, err)
			var got []uuid.UUID
			for _, c := range found.Credentials {
				got = append(got, c.ID)
			}
			if !slices.Equal(got, want) || found.Partial != partial {
				t.Errorf("%s: %v, partial %t; want %v, partial %t", what, got, found.Partial, want, partial)
			}
			return found
		}
	}
	old := connections(1, 28, 2, "null")
	connections(usage.LooksAt-1, 10, 20, "now()")
	wants("idle, all", false, old)(overviews.Idle(l.Context(), by, audit.Cursor{}, 5))
	wants("expiring, all", false, old)(overviews.Expiring(l.Context(), by, 30, 5))
	connections(1, 9, 20, "now()")
	connections(usage.LooksAt, 60, -30, "now()") // ended
	page := wants("idle", true)(overviews.Idle(l.Context(), by, audit.Cursor{}, 5))
	// The next page goes on after the last one that was looked at, which is the one before the old one.
	page = wants("idle, then", true, old)(overviews.Idle(l.Context(), by, page.Next, 5))
	wants("idle, at last", false)(overviews.Idle(l.Context(), by, page.Next, 5))
	wants("expiring", true, old)(overviews.Expiring(l.Context(), by, 30, 5))
	by.Permissions, by.UserID = nil, uuid.New() // another member, who sees only their own
	wants("another's idle", false)(overviews.Idle(l.Context(), by, audit.Cursor{}, 5))
	wants("another's expiring", false)(overviews.Expiring(l.Context(), by, 30, 5))
	by.UserID = user
	l.fixture.Exec(`insert into account.usage (tenant_id, credential_id, day, operation, kind, user_id, requests)
		select $1, case when n = 1 then $2::uuid else $3 end, (now() at time zone 'UTC')::date - (n = 1)::int, n::text,
			'connection', $4, 1 + (n = 1)::int * $5 from generate_series(1, $5) n`,
		l.fixture.WorkspaceID, uuid.New(), old, user, usage.Counts+1)
	most := wants("busiest", true, old)(overviews.Busiest(l.Context(), by, 5))
	if today := time.Now().UTC().Format(time.DateOnly); most.Since.Format(time.DateOnly) != today {
		t.Errorf("use was counted since %v, want %s", most.Since, today)
	}
}
