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
	ids := func(found []usage.Credential, err error) (out []uuid.UUID) {
		must(l, err)
		for _, c := range found {
			out = append(out, c.ID)
		}
		return out
	}
	var found []uuid.UUID
	for before := (audit.Cursor{}); ; {
		page, err := overviews.Idle(l.Context(), by, usage.Selection{Before: before, Limit: 1})
		must(l, err)
		if len(page) == 0 {
			break
		}
		found, before = append(found, page[0].ID), audit.Cursor{At: page[0].Created, ID: page[0].ID}
	}
	if !slices.Equal(found, idle) {
		t.Errorf("idle are %v, want %v", found, idle)
	}
	chosen := usage.Selection{IDs: []uuid.UUID{idle[1], busy, ended}, Limit: 3}
	if got := ids(overviews.Idle(l.Context(), by, chosen)); !slices.Equal(got, idle[1:2]) {
		t.Errorf("of the chosen ones these are idle: %v", got)
	}
	if got, want := ids(overviews.Expiring(l.Context(), by, 9)), []uuid.UUID{soon, idle[2]}; !slices.Equal(got, want) {
		t.Errorf("expiring are %v, want %v", got, want)
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
