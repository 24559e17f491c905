package grant_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A pausingStore runs a step of the test between a decision in Redis and its commit in Postgres.
type pausingStore struct {
	grant.GrantStore
	beforeActivate, beforeOpen, beforeDeny func()
}

func (h pausingStore) Open(ctx context.Context, g grant.Grant, approval int) (grant.State, error) {
	if h.beforeOpen != nil {
		h.beforeOpen()
	}
	return h.GrantStore.Open(ctx, g, approval)
}

func (h pausingStore) Deny(ctx context.Context, key grant.Key, actor string) error {
	if h.beforeDeny != nil {
		h.beforeDeny()
	}
	return h.GrantStore.Deny(ctx, key, actor)
}

// held returns a testEnv whose Service pauses where h says. The Service of b does not.
func (b *testEnv) held(h pausingStore) *testEnv {
	h.GrantStore = &aroundStore{b.store, func(
		_ context.Context, step grant.Step, take stepFunc,
	) (grant.UpdateResult, error) {
		if h.beforeActivate != nil {
			h.beforeActivate()
		}
		return take(step)
	}}
	out := *b
	out.grants = b.service(h)
	return &out
}

// both returns g with a second permission.
func both(g grant.Grant) grant.Grant {
	g.Permissions = perm.NewSet(perm.ProgrammesRead, perm.ProgrammesWrite)
	return g
}

// G4: the clock of Postgres decides. The clock of the process may be wrong.
func TestG4_EndIsCountedFromPostgresClock(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g := b.pending(b.app)
	g.Life, g.Ends = 30*24*time.Hour, time.Now().Add(-365*24*time.Hour)
	code, err := b.grants.Open(t.Context(), g, b.terms())
	if err != nil {
		t.Fatal(err)
	}
	var left time.Duration
	err = b.fixture.Owner.QueryRow(
		t.Context(),
		`select ends_at - now() from account.grants where id = $1`,
		g.ID,
	).Scan(&left)
	if err != nil {
		t.Fatal(err)
	}
	if left > g.Life || left < g.Life-time.Minute {
		t.Errorf("the grant ends in %s, want %s", left, g.Life)
	}
	if _, err := b.redeem(code, b.terms()); err != nil {
		t.Errorf("Redis has another end: %v", err)
	}
}

// stored returns what both stores hold of a grant.
func (b *testEnv) stored(id uuid.UUID) (row string, key map[string]string) {
	b.Helper()
	err := b.fixture.Owner.QueryRow(b.Context(), `select coalesce(
			(select g::text from account.grants g where id = $1), '') || (
		select count(*) from account.audit_events where subject = 'grant:' || $1)`, id).
		Scan(&row)
	if err != nil {
		b.Fatal(err)
	}
	if key, err = b.rdb.HGetAll(b.Context(), "g:{"+id.String()+"}").Result(); err != nil {
		b.Fatal(err)
	}
	return row, key
}

func TestG12_ApprovalAfterRedemptionChangesNothing(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g, code := b.consent()
	between := b.held(pausingStore{beforeActivate: func() {
		row, key := b.stored(g.ID)
		if _, err := b.grants.Open(t.Context(), both(g), b.terms()); !errors.Is(err, grant.ErrAlreadyUsed) {
			t.Errorf("approval of more permissions: %v", err)
		}
		rowAfter, keyAfter := b.stored(g.ID)
		if row != rowAfter || !maps.Equal(key, keyAfter) {
			t.Errorf("the refused approval changed the grant: %s, %s", row, rowAfter)
		}
	}})
	issued, err := between.redeem(code, b.terms())
	if err != nil || issued.Grant.Permissions.Scope() != "programmes:read:programmes" {
		t.Fatalf("%s %v", issued.Grant.Permissions.Scope(), err)
	}
	after, err := b.rotate(issued.Refresh)
	if err != nil || after.Grant.Permissions.Scope() != "programmes:read:programmes" {
		t.Errorf("after a refresh: %s %v", after.Grant.Permissions.Scope(), err)
	}
}

// The process ends after Redis has accepted the approval's code. The earlier code is replaced, nothing is granted, and
// the next approval succeeds.
func TestG12_InterruptedApprovalGrantsNothing(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g, first := b.consent()
	row, _ := b.stored(g.ID)
	func() {
		defer func() { _ = recover() }()
		cut := b.held(pausingStore{beforeOpen: func() { panic("the process ends here") }})
		_, _ = cut.grants.Open(t.Context(), both(g), b.terms())
	}()
	if after, _ := b.stored(g.ID); after != row {
		t.Errorf("Postgres holds %s, want %s", after, row)
	}
	_, err := b.redeem(first, b.terms())
	b.refused("the earlier code", err)
	code, err := b.grants.Open(t.Context(), g, b.terms())
	if err != nil {
		t.Fatal(err)
	}
	if issued, err := b.redeem(code, b.terms()); err != nil || len(issued.Grant.Permissions) != 1 {
		t.Errorf("the next approval: %s %v", issued.Grant.Permissions.Scope(), err)
	}
}

// Two approvals overlap between the stores, in each order. The code that can be redeemed has the permissions of its own
// approval.
func TestG12_ConcurrentApprovalsKeepTheirPermissions(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g := b.pending(b.app)
	for _, widerFirst := range []bool{true, false} {
		g.ID = uuid.New()
		outer, inner := g, both(g)
		if widerFirst {
			outer, inner = inner, outer
		}
		var last credential.Secret
		passing := b.held(pausingStore{beforeOpen: func() {
			var err error
			if last, err = b.grants.Open(t.Context(), inner, b.terms()); err != nil {
				t.Fatal(err)
			}
		}})
		if _, err := passing.grants.Open(t.Context(), outer, b.terms()); err != nil {
			t.Fatal(err)
		}

		issued, err := b.redeem(last, b.terms())
		if err != nil || !slices.Equal(issued.Grant.Permissions, inner.Permissions) {
			t.Errorf(
				"wider first %v: the last code gives %s, want %s, %v",
				widerFirst,
				issued.Grant.Permissions.Scope(),
				inner.Permissions.Scope(),
				err,
			)
		}
	}
}

// Redis is restored to an older copy of the grant, in which the replaced code is still valid.
func TestG12_ReplacedCodeFailsAfterRedisRestore(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	g, first := b.consent()
	key := "g:{" + g.ID.String() + "}"
	older, err := b.rdb.Dump(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.grants.Open(t.Context(), both(g), b.terms()); err != nil {
		t.Fatal(err)
	}
	if err := b.rdb.RestoreReplace(t.Context(), key, 0, older).Err(); err != nil {
		t.Fatal(err)
	}
	_, err = b.redeem(first, b.terms())
	b.refused("the replaced code", err)
	b.wantRevoked(g.ID, grant.CodeReused)
}
