package postgres_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

const day = 24 * time.Hour

func policyOf(days int, platforms []workspace.Platform, permissions ...perm.Permission) workspace.ConnectorPolicy {
	return workspace.ConnectorPolicy{Platforms: platforms, Permissions: perm.NewSet(permissions...), Days: days}
}

var both = []perm.Permission{perm.ProgrammesRead, perm.ProgrammesWrite}

// consented opens a grant of the app and redeems it, dated age ago.
func (l *storeTest) consented(app client.Client, age time.Duration) grant.Grant {
	l.Helper()
	g := l.grant
	g.ID, g.Kind, g.ClientID, g.Permissions, g.Ends = uuid.New(), app.Kind, app.ID, app.Required, time.Now().
		Add(app.Kind.Traits().GrantLife)
	wants(l, grant.Pending)(l.approve(l.Context(), g))
	wants(l, grant.Updated)(l.activate(l.Context(), g.ID, 1))
	stored := l.stored(g)
	l.fixture.Exec(`update account.grants set created_at = $2, ends_at = $3 where id = $1`, g.ID,
		stored.Created.Add(-age), stored.Ends.Add(-age))
	return l.stored(g)
}

func (l *storeTest) stored(g grant.Grant) grant.Grant {
	l.Helper()
	found, err := l.Grant(l.Context(), g.Key())
	must(l, err)
	return found
}

func (l *storeTest) limit(p workspace.ConnectorPolicy) consent.PolicyChange {
	l.Helper()
	change, err := l.ReplaceConnectorPolicy(l.Context(), l.fixture.WorkspaceID, "", p,
		l.event(audit.ConnectorPolicyChanged))
	must(l, err)
	return change
}

func TestP2_StricterPolicyNarrowsExistingGrants(t *testing.T) {
	l := newStoreTest(t)
	app := l.fixture.Connector("https://api.example.org/v1", both...)
	young, old := l.consented(app, 0), l.consented(app, 20*day)
	writer := l.consented(l.fixture.Connector("https://api.example.org/v1", perm.ProgrammesWrite), 0)
	linked, _ := l.fixture.Confidential(both...)
	other := l.consented(linked, 20*day)
	pending := l.grant
	pending.ID, pending.ClientID, pending.Permissions, pending.Ends = uuid.New(), app.ID, app.Required, time.Now().
		Add(30*day)
	wants(l, grant.Pending)(l.approve(t.Context(), pending))
	dead := pending
	dead.ID = uuid.New()
	wants(l, grant.Pending)(l.approve(t.Context(), dead))
	l.fixture.Exec(`update account.grants set created_at = $2 where id = $1`, dead.ID, time.Now().Add(-3*time.Hour))
	narrow := policyOf(7, workspace.Platforms(), perm.ProgrammesRead)
	change := l.limit(narrow)
	want := consent.PolicyEffect{End: 2, Lose: 1, Sooner: 1}
	if change.Effect != want || len(change.EndedGrants) != 2 {
		t.Errorf("%+v, want %+v, and %d ended", change.Effect, want, len(change.EndedGrants))
	}
	for name, g := range map[string]grant.Grant{"too old": old, "nothing left": writer} {
		if now := l.stored(g); now.State != grant.Revoked || now.Reason != grant.ByPolicy {
			t.Errorf("%s: %s %s", name, now.State, now.Reason)
		}
	}
	for name, g := range map[string]grant.Grant{"active": young, "pending": pending} {
		now := l.stored(g)
		if now.State == grant.Revoked || !slices.Equal(now.Permissions, perm.NewSet(perm.ProgrammesRead)) ||
			!now.Ends.Equal(now.Created.Add(7*day)) {
			t.Errorf("%s: %s %v until %s", name, now.State, now.Permissions, now.Ends)
		}
	}
	if now := l.stored(other); len(now.Permissions) != 2 || !now.Ends.Equal(other.Ends) || now.State != grant.Active {
		t.Error("a confidential application's grant was touched")
	}
	l.events(audit.GrantNarrowed, 2)
	l.events(audit.GrantRevoked, 2)
	l.events(audit.ConnectorPolicyChanged, 1)
}

func (l *storeTest) events(action string, want int) {
	l.Helper()
	l.wantCount(want, "events", `select count(*) from account.audit_events where action = $1 and tenant_id = $2`,
		action, l.fixture.WorkspaceID)
}

func TestP3_LooserPolicyWidensNoGrant(t *testing.T) {
	l := newStoreTest(t)
	app := l.fixture.Connector("https://api.example.org/v1", both...)
	before := l.consented(app, 0)
	l.limit(policyOf(7, workspace.Platforms(), perm.ProgrammesRead))
	during := l.consented(app, 0)
	lowered := l.stored(before)
	if change := l.limit(workspace.DefaultConnectorPolicy()); !change.Effect.None() {
		t.Errorf("a looser policy changed grants: %+v", change.Effect)
	}
	for _, g := range []grant.Grant{lowered, during} {
		now := l.stored(g)
		if !slices.Equal(now.Permissions, perm.NewSet(perm.ProgrammesRead)) || !now.Ends.Equal(g.Ends) ||
			now.Ends.After(now.Created.Add(7*day+time.Second)) {
			t.Errorf("grant became wider: %v until %s", now.Permissions, now.Ends)
		}
	}
	if after := l.consented(app, 0); len(after.Permissions) != 2 || after.Ends.Before(time.Now().Add(29*day)) {
		t.Error("a new consent does not get what the policy allows now")
	}
}

func TestSetConnectorPolicy_RevokesGrantsOfDisallowedPlatform(t *testing.T) {
	l := newStoreTest(t)
	app := l.fixture.Connector("https://api.example.org/v1", both...)
	held, approved := l.consented(app, 0), l.grant
	approved.ID, approved.ClientID = uuid.New(), app.ID
	wants(l, grant.Pending)(l.approve(t.Context(), approved))
	change := l.limit(policyOf(30, []workspace.Platform{workspace.ChatGPT, workspace.Other}, perm.ForConnectors()...))
	if change.Effect != (consent.PolicyEffect{End: 1}) || len(change.EndedGrants) != 2 {
		t.Errorf("%+v, %d ended", change.Effect, len(change.EndedGrants))
	}
	for name, g := range map[string]grant.Grant{"active": held, "only approved": approved} {
		if now := l.stored(g); now.State != grant.Revoked || now.Reason != grant.ByPolicy {
			t.Errorf("%s: %s %s", name, now.State, now.Reason)
		}
	}
	refused := approved
	refused.ID = uuid.New()
	wantErr(t, "consent for a disallowed platform", grant.ErrPolicy, errOf(l.approve(t.Context(), refused)))
	l.limit(policyOf(30, nil, perm.ForConnectors()...))
	wantErr(t, "consent with no allowed platform", grant.ErrPolicy, errOf(l.approve(t.Context(), refused)))
}

func TestSetConnectorPolicy_SamePolicyWritesNoEvent(t *testing.T) {
	l := newStoreTest(t)
	l.limit(workspace.DefaultConnectorPolicy())
	l.events(audit.ConnectorPolicyChanged, 0)
	one := policyOf(3, []workspace.Platform{workspace.Claude}, both...)
	l.limit(one)
	l.limit(one)
	l.events(audit.ConnectorPolicyChanged, 1)
	found, err := l.ConnectorPolicy(t.Context(), l.fixture.WorkspaceID)
	if err != nil || !found.Equal(one) {
		t.Errorf("%+v %v", found, err)
	}
	if elsewhere, err := l.ConnectorPolicy(t.Context(), l.fixture.Workspace("Hillside Youth Club")); err != nil ||
		!elsewhere.Equal(workspace.DefaultConnectorPolicy()) {
		t.Errorf("another workspace: %+v %v", elsewhere, err)
	}
	wantErr(t, "unknown workspace", admin.ErrNoWorkspace,
		errOf(l.ReplaceConnectorPolicy(t.Context(), uuid.New(), "", one, audit.Event{Authorization: operator})))
}

func TestReplaceConnectorPolicy_RequiresCurrentDigest(t *testing.T) {
	l := newStoreTest(t)
	claude := []workspace.Platform{workspace.Claude}
	first, second := policyOf(3, claude, both...), policyOf(5, claude, both...)
	replace := func(seen, wanted workspace.ConnectorPolicy) error {
		return errOf(l.ReplaceConnectorPolicy(t.Context(), l.fixture.WorkspaceID, seen.Digest(), wanted,
			l.event(audit.ConnectorPolicyChanged)))
	}
	wantErr(t, "replace the default policy", nil, replace(workspace.DefaultConnectorPolicy(), first))
	wantErr(t, "replace with an outdated digest", consent.ErrPolicyChanged,
		replace(workspace.DefaultConnectorPolicy(), second))
	wantErr(t, "outdated digest, policy already set", nil, replace(workspace.DefaultConnectorPolicy(), first))
	wantErr(t, "replace the current policy", nil, replace(first, second))
	l.events(audit.ConnectorPolicyChanged, 2)
}

// Approvals run concurrently with a stricter policy: whatever comes first, no grant exceeds the policy
// afterwards.
func TestP2_ConcurrentApprovalDoesNotExceedStricterPolicy(t *testing.T) {
	l := newStoreTest(t)
	app := l.fixture.Connector("https://api.example.org/v1", both...)
	wide, narrow := workspace.DefaultConnectorPolicy(), policyOf(1, workspace.Platforms(), perm.ProgrammesRead)
	for range 30 {
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				g := l.grant
				g.ID, g.ClientID, g.Permissions, g.Ends = uuid.New(), app.ID, app.Required, time.Now().Add(30*day)
				wants(l, grant.Pending)(l.approve(t.Context(), g))
			})
		}
		group.Go(func() { l.limit(narrow) })
		group.Wait()
		l.wantCount(0, "grants exceed the policy", `select count(*) from account.grants
			where tenant_id = $1 and state <> 'revoked' and (permissions <> '{programmes:read:programmes}'
			or ends_at > now() + interval '1 day')`, l.fixture.WorkspaceID)
		l.limit(wide)
	}
}
