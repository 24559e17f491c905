package postgres_test

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// refreshRole creates a login for refreshes whose commits do not wait for the disk, and returns its URL.
func (l *storeTest) refreshRole(name string) credential.Secret {
	l.Helper()
	ctx := l.Context()
	superuser, err := pgx.Connect(ctx, l.fixture.Database.Superuser)
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = superuser.Close(l.Context()) })
	for _, sql := range []string{
		"drop role if exists " + name,
		"create role " + name + " login password 'for tests' in role almoner_authserver",
		"alter role " + name + " set synchronous_commit = off",
	} {
		if _, err := superuser.Exec(ctx, sql); err != nil {
			l.Fatal(err)
		}
	}
	address, err := url.Parse(l.fixture.Database.Authserver)
	if err != nil {
		l.Fatal(err)
	}
	address.User = url.UserPassword(name, "for tests")
	return credential.Secret(address.String())
}

// reopen replaces the store with one whose refreshes use another URL.
func (l *storeTest) reopen(refreshes credential.Secret) {
	l.Helper()
	l.Close()
	var err error
	l.Store, err = postgres.Open(l.Context(), postgres.Sources{
		Database:  credential.Fixed(credential.Secret(l.fixture.Database.Authserver)),
		Refreshes: credential.Fixed(refreshes),
	}, testkit.StoreWait)
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(l.Store.Close)
}

// notesCommits notes each commit of a change of a grant. The settings are read at the commit itself: a deferred trigger
// runs after the statement, just before the transaction ends.
func (l *storeTest) notesCommits() {
	l.Helper()
	for _, sql := range []string{
		`create table account.commits (generation integer, state text, by name, waits text)`,
		`create function account.note_commit() returns trigger language plpgsql security definer as $$
		begin
			insert into account.commits
				values (new.generation, new.state, session_user, current_setting('synchronous_commit'));
			return null;
		end $$`,
		`create constraint trigger note_commit after insert or update on account.grants deferrable initially deferred
			for each row execute function account.note_commit()`,
	} {
		l.fixture.Exec(sql)
	}
}

// Only refreshes use the role for refreshes, if there is one. The use of a code must be durable (G1), so it uses the
// other role. Only the commits of refreshes do not wait for the disk.
func TestRefreshPool_TakesStepsOfRefreshesOnly(t *testing.T) {
	testkit.SkipIfDistributed(t, "Citus refuses the triggers of this test")
	t.Parallel()
	for _, own := range []bool{true, false} {
		l := ownStoreTest(t)
		if own {
			l.reopen(l.refreshRole("almoner_test_refreshes"))
		}
		l.notesCommits()
		if err := l.PingRefreshes(t.Context()); err != nil || l.HasRefreshPool() != own {
			t.Fatalf("%v, own pool: %t, want %t", err, l.HasRefreshPool(), own)
		}
		l.wantState(grant.Pending)(l.approve(t.Context(), l.grant))
		l.wantResult(grant.Updated)(l.activate(t.Context(), l.grant.ID, 1))
		l.wantResult(grant.Updated)(l.advance(t.Context(), l.grant.ID, 2, hash(2)))
		l.wantResult(grant.Updated)(l.directly(l.step("direct", 3, hash(3))))
		if snapshot, err := l.Snapshot(t.Context(), l.grant.ClientID, l.grant.Key()); err != nil ||
			snapshot.Grant.Generation != 3 {
			t.Errorf("%+v %v", snapshot.Grant, err)
		}
		if err := l.Revoke(t.Context(), l.grant.Key(), grant.ByUser, "user", nil); err != nil {
			t.Fatal(err)
		}
		got := l.texts(`select state || ' ' || generation || ' ' || (by = 'almoner_test_refreshes') || ' ' || waits
			from account.commits`)
		want := []string{
			"pending 0 false on",
			"active 1 false on",
			fmt.Sprintf("active 2 %t off", own),
			fmt.Sprintf("active 3 %t off", own),
			"revoked 3 false on",
		}
		if !slices.Equal(got, want) {
			t.Errorf("own pool %t: got %q, want %q", own, got, want)
		}
	}
}

// Another database does not have the grants, so refreshes would look like the use of stolen tokens. They fail instead.
func TestRefreshPool_RefusesAnotherDatabase(t *testing.T) {
	t.Parallel()
	l := ownStoreTest(t)
	l.publish("one")
	l.wantState(grant.Pending)(l.approve(t.Context(), l.grant))
	l.wantResult(grant.Updated)(l.activate(t.Context(), l.grant.ID, 1))
	other := fixture.New(t)
	l.reopen(credential.Secret(other.Database.Authserver))
	if err := l.PingRefreshes(t.Context()); err == nil ||
		!strings.Contains(err.Error(), postgres.ErrOtherDatabase.Error()) {
		t.Errorf("%v, want %v", err, postgres.ErrOtherDatabase)
	}
	if result, err := l.advance(t.Context(), l.grant.ID, 2, hash(2)); !errors.Is(err, postgres.ErrOtherDatabase) {
		t.Errorf("%v %v, want %v", result, err, postgres.ErrOtherDatabase)
	}
	if _, err := l.Snapshot(t.Context(), l.grant.ClientID, l.grant.Key()); !errors.Is(err, postgres.ErrOtherDatabase) {
		t.Errorf("%v, want %v", err, postgres.ErrOtherDatabase)
	}
	l.publish("two")
	other.Exec(`insert into account.signing_keys (kid, public_jwk, private_sealed, state)
		values ('two', '{}', '', 'next')`)
	if err := l.PingRefreshes(t.Context()); err != nil {
		t.Errorf("a database with the same key: %v", err)
	}
}
