package grant_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/store/redis"
	"github.com/almonerhq/almoner/shared/credential"
	"github.com/almonerhq/almoner/shared/perm"
)

// A heldLedger runs a test's step between a decision in Redis and its commit in Postgres.
type heldLedger struct {
	grant.GrantStore
	beforeActivate, beforeOpen, beforeDeny func()
}

func (h heldLedger) Activate(ctx context.Context, step grant.Step, binding []byte) (grant.UpdateResult, error) {
	if h.beforeActivate != nil {
		h.beforeActivate()
	}
	return h.GrantStore.Activate(ctx, step, binding)
}

func (h heldLedger) Open(ctx context.Context, g grant.Grant, approval int) (grant.State, error) {
	if h.beforeOpen != nil {
		h.beforeOpen()
	}
	return h.GrantStore.Open(ctx, g, approval)
}

func (h heldLedger) Deny(ctx context.Context, id uuid.UUID, actor string) error {
	if h.beforeDeny != nil {
		h.beforeDeny()
	}
	return h.GrantStore.Deny(ctx, id, actor)
}

// held is a bench whose Keeper stops where h says. The bench's own keeper does not.
func (b *bench) held(h heldLedger) *bench {
	h.GrantStore = b.store
	out := *b
	out.keeper = grant.NewService(h, redis.NewGrants(b.rdb), b.mint, slog.New(slog.DiscardHandler))
	return &out
}

// both is g with another permission.
func both(g grant.Grant) grant.Grant {
	g.Permissions = perm.NewSet(perm.ProgrammesRead, perm.ProgrammesWrite)
	return g
}

// G4: the store's clock decides. The process that approves may have any time.
func TestG4_EndOfAGrantIsCountedFromTheStoresClock(t *testing.T) {
	b := newBench(t)
	g := b.pending(b.app)
	g.Life, g.Ends = 30*24*time.Hour, time.Now().Add(-365*24*time.Hour)
	code, err := b.keeper.Open(t.Context(), g, b.terms())
	if err != nil {
		t.Fatal(err)
	}
	var left time.Duration
	if err := b.world.Owner.QueryRow(t.Context(), `select ends_at - now() from account.grants where id = $1`, g.ID).Scan(&left); err != nil {
		t.Fatal(err)
	}
	if left > g.Life || left < g.Life-time.Minute {
		t.Errorf("the grant ends in %s, want %s", left, g.Life)
	}
	if _, err := b.redeem(code, b.terms()); err != nil {
		t.Errorf("Redis has another end: %v", err)
	}
}

// stored is what both stores hold of a grant.
func (b *bench) stored(id uuid.UUID) (row string, key map[string]string) {
	b.Helper()
	err := b.world.Owner.QueryRow(b.Context(), `select coalesce((select g::text from account.grants g where id = $1), '') || (
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

func TestG12_AnApprovalThatLosesToARedemptionChangesNothing(t *testing.T) {
	b := newBench(t)
	g, code := b.consent()
	between := b.held(heldLedger{beforeActivate: func() {
		row, key := b.stored(g.ID)
		if _, err := b.keeper.Open(t.Context(), both(g), b.terms()); !errors.Is(err, grant.ErrAlreadyUsed) {
			t.Errorf("the approval of more: %v", err)
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

// An approval that the process does not survive after Redis has accepted its code: the earlier code is replaced,
// nothing is granted, and the next approval counts.
func TestG12_AnApprovalCutOffBetweenTheStoresGrantsNothing(t *testing.T) {
	b := newBench(t)
	g, first := b.consent()
	row, _ := b.stored(g.ID)
	func() {
		defer func() { _ = recover() }()
		cut := b.held(heldLedger{beforeOpen: func() { panic("the process ends here") }})
		_, _ = cut.keeper.Open(t.Context(), both(g), b.terms())
	}()
	if after, _ := b.stored(g.ID); after != row {
		t.Errorf("Postgres holds %s, want %s", after, row)
	}
	_, err := b.redeem(first, b.terms())
	b.refused("the code before", err)
	code, err := b.keeper.Open(t.Context(), g, b.terms())
	if err != nil {
		t.Fatal(err)
	}
	if issued, err := b.redeem(code, b.terms()); err != nil || len(issued.Grant.Permissions) != 1 {
		t.Errorf("the next approval: %s %v", issued.Grant.Permissions.Scope(), err)
	}
}

// The codes of two approvals that pass each other between the stores, in each order: the code that can be redeemed has
// the permissions of its own approval.
func TestG12_OfTwoApprovalsAtOnceEachCodeIsWorthItsOwn(t *testing.T) {
	b := newBench(t)
	g := b.pending(b.app)
	for _, widerFirst := range []bool{true, false} {
		g.ID = uuid.New()
		outer, inner := g, both(g)
		if widerFirst {
			outer, inner = inner, outer
		}
		var last credential.Secret
		passing := b.held(heldLedger{beforeOpen: func() {
			var err error
			if last, err = b.keeper.Open(t.Context(), inner, b.terms()); err != nil {
				t.Fatal(err)
			}
		}})
		if _, err := passing.keeper.Open(t.Context(), outer, b.terms()); err != nil {
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

// Redis comes back with an older copy of the grant, in which the replaced code counts.
func TestG12_AReplacedCodeThatRedisRemembersGivesNothing(t *testing.T) {
	b := newBench(t)
	g, first := b.consent()
	key := "g:{" + g.ID.String() + "}"
	older, err := b.rdb.Dump(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.keeper.Open(t.Context(), both(g), b.terms()); err != nil {
		t.Fatal(err)
	}
	if err := b.rdb.RestoreReplace(t.Context(), key, 0, older).Err(); err != nil {
		t.Fatal(err)
	}
	_, err = b.redeem(first, b.terms())
	b.refused("the replaced code", err)
	b.dead(g.ID, grant.CodeReused)
}
