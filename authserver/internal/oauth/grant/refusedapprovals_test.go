package grant_test

import (
	"context"
	"errors"
	"maps"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// connecting returns a testEnv with a connector, and a grant of two permissions whose code is outstanding.
func connecting(t *testing.T) (*testEnv, grant.Grant, credential.Secret) {
	t.Helper()
	b := sharedTestEnv(t)
	g := both(b.pending(b.app))
	code := b.open(g)
	return b, g, code
}

// writing returns g with the permission that readOnly forbids.
func writing(g grant.Grant) grant.Grant {
	g.Permissions = perm.NewSet(perm.ProgrammesWrite)
	return g
}

// readOnly lowers the workspace's policy so that it forbids writing.
func (b *testEnv) readOnly() {
	b.Helper()
	lowered := workspace.DefaultConnectorPolicy()
	lowered.Permissions = perm.NewSet(perm.ProgrammesRead)
	event := audit.Event{WorkspaceID: &b.fixture.WorkspaceID, Actor: "operator", Action: audit.ConnectorPolicyChanged}
	event.Authorization = &audit.Authorization{Operator: true}
	_, err := b.store.ReplaceConnectorPolicy(b.Context(), b.fixture.WorkspaceID, "", lowered, event)
	testkit.Must(b, err)
}

// withoutNumber returns a hash without the number of the last withdrawn approval.
func withoutNumber(key map[string]string) map[string]string {
	key = maps.Clone(key)
	delete(key, "wd")
	return key
}

// The policy becomes narrower between the check of an approval and its write. The approval is refused, and the earlier
// code works with those of its permissions that are allowed.
func TestG12_RefusedApprovalKeepsEarlierCode(t *testing.T) {
	t.Parallel()
	b, g, first := connecting(t)
	_, before := b.stored(g)
	lowered := b.held(pausingStore{beforeOpen: b.readOnly})
	elsewhere, terms := writing(g), b.terms()
	elsewhere.Resource, terms.Resource = "https://api.example.org/other", "https://api.example.org/other"
	if _, err := lowered.grants.Open(t.Context(), elsewhere, terms); !errors.Is(err, grant.ErrPolicy) {
		t.Fatalf("the approval of what is forbidden: %v", err)
	}
	if _, after := b.stored(g); !maps.Equal(before, withoutNumber(after)) {
		t.Errorf("Redis holds %q, want %q", after, before)
	}
	issued := b.mustRedeem(first)
	if issued.Grant.Permissions.Scope() != string(perm.ProgrammesRead) {
		t.Errorf("the earlier code gives %s", issued.Grant.Permissions.Scope())
	}
	b.mustRotate(issued.Refresh)
}

// Two approvals are refused while a third is in progress, in each order. Then the earlier code works again, and wrong
// attempts at it still count.
func TestG12_OverlappingRefusedApprovalsKeepEarlierCode(t *testing.T) {
	t.Parallel()
	for _, approvedBetween := range []bool{false, true} {
		b, g, code := connecting(t)
		wrong := b.terms()
		wrong.Challenge = "another"
		b.refused("a wrong verifier")(b.redeem(code, wrong))
		_, before := b.stored(g)

		refusedInside := b.held(pausingStore{beforeOpen: func() {
			b.readOnly()
			if approvedBetween {
				code = b.open(g)
				_, before = b.stored(g)
			}
			b.notApproved("the inner approval", writing(g), grant.ErrPolicy)
		}})
		refusedInside.notApproved("the outer approval", writing(g), grant.ErrPolicy)
		_, after := b.stored(g)
		for _, field := range []string{"st", "ap", "ch", "cx", "en", "ft"} {
			if before[field] != after[field] {
				t.Errorf("approved between %v: %s is %q, want %q", approvedBetween, field, after[field], before[field])
			}
		}
		b.mustRedeem(code)
	}
}

// The earlier of two approvals is refused while the later one is between the stores, and then the later one is refused.
func TestG12_RefusedReplacedApprovalIsNotRestored(t *testing.T) {
	t.Parallel()
	b, g, code := connecting(t)
	_, before := b.stored(g)
	issued, refuse, ended := make(chan bool), make(chan bool), make(chan error)
	earlier := b.held(pausingStore{beforeOpen: func() { close(issued); <-refuse }})
	go func() {
		_, err := earlier.grants.Open(context.WithoutCancel(t.Context()), writing(g), b.terms())
		ended <- err
	}()
	<-issued
	later := b.held(pausingStore{beforeOpen: func() {
		b.readOnly()
		close(refuse)
		if err := <-ended; !errors.Is(err, grant.ErrPolicy) {
			t.Errorf("the earlier approval: %v", err)
		}
	}})
	later.notApproved("the later approval", writing(g), grant.ErrPolicy)
	if _, after := b.stored(g); !maps.Equal(before, withoutNumber(after)) {
		t.Errorf("Redis holds %q, want %q", after, before)
	}
	b.mustRedeem(code)
}

// The first approval of a grant is refused and leaves nothing behind.
func TestG12_RefusedFirstApprovalLeavesNothing(t *testing.T) {
	b := newTestEnv(t)
	g := writing(b.pending(b.app))
	lowered := b.held(pausingStore{beforeOpen: b.readOnly})
	lowered.notApproved("the approval", g, grant.ErrPolicy)
	if row, key := b.stored(g); row != "0" || len(key) != 0 {
		t.Errorf("Postgres holds %s, Redis %q", row, key)
	}
}

// The code is redeemed between the check of a denial and its write. The denial is refused, and the grant stays as
// redeemed.
func TestG12_DenialAfterRedemptionChangesNothing(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.consent()
	var issued grant.Issued
	between := b.held(pausingStore{beforeDeny: func() { issued = b.mustRedeem(code) }})
	if err := between.grants.Deny(t.Context(), g, "user"); !errors.Is(err, grant.ErrAlreadyUsed) {
		t.Errorf("the denial: %v", err)
	}
	b.wantActive(g.ID)
	b.mustRotate(issued.Refresh)
}

// The denial comes between the two stores of a redemption. The grant ends; the client may get tokens, which do not
// work.
func TestG12_DenialDuringRedemptionEndsGrant(t *testing.T) {
	b := newTestEnv(t)
	g, code := b.consent()
	between := b.held(pausingStore{beforeActivate: func() {
		if err := b.grants.Deny(t.Context(), g, "user"); err != nil {
			t.Errorf("the denial: %v", err)
		}
	}})
	issued, err := between.redeem(code, b.terms())
	if err == nil {
		issued, err = b.rotate(issued.Refresh)
	}
	b.refused("the grant")(issued, err)
	b.wantRevoked(g.ID, grant.ByUser)
}
