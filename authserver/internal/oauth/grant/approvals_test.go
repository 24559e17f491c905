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
	"github.com/almonerhq/almoner/shared/devkit/testkit"
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
	h.GrantStore = aroundOf(b.store, func(step grant.Step, take stepFunc) (grant.UpdateResult, error) {
		if h.beforeActivate != nil {
			h.beforeActivate()
		}
		return take(step)
	})
	return b.over(h)
}

// both returns g with a second permission.
func both(g grant.Grant) grant.Grant {
	g.Permissions = perm.NewSet(perm.ProgrammesRead, perm.ProgrammesWrite)
	return g
}

// G4: the clock of Postgres decides. The clock of the process may be wrong.
func TestG4_EndIsCountedFromPostgresClock(t *testing.T) {
	b := newTestEnv(t)
	g := b.pending(b.app)
	g.Life, g.Ends = 30*24*time.Hour, time.Now().Add(-365*24*time.Hour)
	code := b.open(g)
	var left time.Duration
	b.fixture.Read(`select ends_at - now() from account.grants where id = '`+g.ID.String()+`'`, &left)
	if left > g.Life || left < g.Life-time.Minute {
		t.Errorf("the grant ends in %s, want %s", left, g.Life)
	}
	b.mustRedeem(code)
}

// stored returns what both stores hold of a grant.
func (b *testEnv) stored(g grant.Grant) (row string, key map[string]string) {
	b.Helper()
	err := b.fixture.Owner.QueryRow(b.Context(), `select coalesce(
			(select g::text from account.grants g where id = $1), '') || (
		select count(*) from account.audit_events where subject = 'grant:' || $1)`, g.ID).Scan(&row)
	testkit.Must(b, err)
	return row, b.fields(g)
}

// notApproved checks that an approval is refused.
func (b *testEnv) notApproved(what string, g grant.Grant, want error) {
	b.Helper()
	if _, err := b.grants.Open(context.WithoutCancel(b.Context()), g, b.terms()); !errors.Is(err, want) {
		b.Errorf("%s: %v, want %v", what, err, want)
	}
}

func TestG12_ApprovalAfterRedemptionChangesNothing(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.consent()
	between := b.held(pausingStore{beforeActivate: func() {
		row, key := b.stored(g)
		b.notApproved("approval of more permissions", both(g), grant.ErrAlreadyUsed)
		rowAfter, keyAfter := b.stored(g)
		if row != rowAfter || !maps.Equal(key, keyAfter) {
			t.Errorf("the refused approval changed the grant: %s, %s", row, rowAfter)
		}
	}})
	issued := between.mustRedeem(code)
	if issued.Grant.Permissions.Scope() != "programmes:read:programmes" {
		t.Errorf("the code gives %s", issued.Grant.Permissions.Scope())
	}
	after, err := b.rotate(issued.Refresh)
	if err != nil || after.Grant.Permissions.Scope() != "programmes:read:programmes" {
		t.Errorf("after a refresh: %s %v", after.Grant.Permissions.Scope(), err)
	}
}

// The process ends after Redis has accepted the approval's code. The earlier code is replaced, nothing is granted, and
// the next approval succeeds.
func TestG12_InterruptedApprovalGrantsNothing(t *testing.T) {
	b := newTestEnv(t)
	g, first := b.consent()
	row, _ := b.stored(g)
	func() {
		defer func() { _ = recover() }()
		cut := b.held(pausingStore{beforeOpen: func() { panic("the process ends here") }})
		_, _ = cut.grants.Open(t.Context(), both(g), b.terms())
	}()
	if after, _ := b.stored(g); after != row {
		t.Errorf("Postgres holds %s, want %s", after, row)
	}
	b.refused("the earlier code")(b.redeem(first, b.terms()))
	if issued := b.mustRedeem(b.open(g)); len(issued.Grant.Permissions) != 1 {
		t.Errorf("the next approval: %s", issued.Grant.Permissions.Scope())
	}
}

// Two approvals overlap between the stores, in each order. The code that can be redeemed has the permissions of its own
// approval.
func TestG12_ConcurrentApprovalsKeepTheirPermissions(t *testing.T) {
	b := newTestEnv(t)
	g := b.pending(b.app)
	for _, widerFirst := range []bool{true, false} {
		g.ID = uuid.New()
		outer, inner := g, both(g)
		if widerFirst {
			outer, inner = inner, outer
		}
		var last credential.Secret
		b.held(pausingStore{beforeOpen: func() { last = b.open(inner) }}).open(outer)

		if got := b.mustRedeem(last).Grant.Permissions; !slices.Equal(got, inner.Permissions) {
			t.Errorf("wider first %t: the last code gives %s, want %s", widerFirst, got.Scope(),
				inner.Permissions.Scope())
		}
	}
}

// Redis is restored to an older copy of the grant, in which the replaced code is still valid.
func TestG12_ReplacedCodeFailsAfterRedisRestore(t *testing.T) {
	b := newTestEnv(t)
	g, first := b.consent()
	restore := b.saved(g)
	b.open(both(g))
	restore()
	b.refused("the replaced code")(b.redeem(first, b.terms()))
	b.wantRevoked(g.ID, grant.CodeReused)
}
