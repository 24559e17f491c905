package postgres_test

import (
	"errors"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// A distributed Postgres refuses a statement that locks grants of several workspaces. Each step then has its own
// statement.
func TestAdvance_RefusedBatchIsTakenOneByOne(t *testing.T) {
	testkit.SkipIfDistributed(t, "Citus refuses the triggers of this test")
	t.Parallel()
	l := ownStoreTest(t)
	grants := l.many(24)
	l.fixture.Exec(`create table account.refusals (at timestamptz); grant insert on account.refusals to public`)
	l.fixture.Exec(`create function account.refuse_many() returns trigger language plpgsql as $$
		begin
			if (select count(*) from changed) > 1 then
				raise exception 'could not run distributed query' using errcode = '0A000';
			end if;
			insert into account.refusals values (now());
			return null;
		end $$`)
	l.fixture.Exec(`create trigger refuse_many after update on account.grants referencing new table as changed
		for each statement execute function account.refuse_many()`)
	const last = 10
	concurrently(len(grants), func(i int) {
		for generation := uint32(2); generation <= last; generation++ {
			l.wantResult(grant.Updated)(l.advance(t.Context(), grants[i].ID, generation, hash(byte(100+i))))
		}
	})
	for _, g := range grants {
		if stored, err := l.Grant(t.Context(), g.Key()); err != nil || stored.Generation != last {
			t.Errorf("%+v %v", stored, err)
		}
	}
}

// Violations are also recognised in a distributed Postgres, where the names of shards end with numbers.
func TestViolations_AreRecognisedInShards(t *testing.T) {
	testkit.SkipIfDistributed(t, "Citus refuses the view of this test, and other tests violate constraints of shards")
	t.Parallel()
	l := ownStoreTest(t)
	user := l.fixture.Member(perm.ProgrammesRead)
	l.fixture.Exec(`alter table account.memberships rename to memberships_102008`)
	l.fixture.Exec(`create view account.memberships as select * from account.memberships_102008`)
	l.fixture.Exec(`grant all on account.memberships to almoner_authserver`)
	l.fixture.Exec(`alter table account.memberships_102008
		rename constraint memberships_pkey to memberships_pkey_102008`)
	event := byOperator(audit.MemberAdded, user)
	err := l.AddMember(t.Context(), l.fixture.WorkspaceID, user, perm.NewSet(perm.ProgrammesRead), event)
	if !errors.Is(err, membership.ErrMember) {
		t.Errorf("%v, want %v", err, membership.ErrMember)
	}
}
