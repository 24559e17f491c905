package postgres_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/policy"
	"github.com/almonerhq/almoner/shared/perm"
)

const day = 24 * time.Hour

func policyOf(days int, platforms []workspace.Platform, permissions ...perm.Permission) workspace.ConnectorPolicy {
	return workspace.ConnectorPolicy{Platforms: platforms, Permissions: perm.NewSet(permissions...), Days: days}
}

var both = []perm.Permission{perm.ProgrammesRead, perm.ProgrammesWrite}

// consented opens a grant of the app and redeems it, as long ago as age.
func (l *ledger) consented(app client.Client, age time.Duration) grant.Grant {
	l.Helper()
	g := l.grant
	g.ID, g.Kind, g.ClientID, g.Permissions, g.Ends = uuid.New(), app.Kind, app.ID, app.Required, time.Now().
		Add(app.Kind.Traits().GrantLife)
	l.wantState(grant.Pending)(l.approve(l.Context(), g))
	l.wantFence(grant.Updated)(l.activate(l.Context(), g.ID, 1))
	l.world.Exec(
		`update account.grants set created_at = created_at - $2::interval, ends_at = ends_at - $2::interval where id = $1`,
		g.ID,
		age,
	)
	return l.stored(g)
}

func (l *ledger) stored(g grant.Grant) grant.Grant {
	l.Helper()
	found, err := l.Grant(l.Context(), g.ID)
	if err != nil {
		l.Fatal(err)
	}
	return found
}

func (l *ledger) limit(p workspace.ConnectorPolicy) policy.Change {
	l.Helper()
	change, err := l.SetConnectorPolicy(l.Context(), l.world.WorkspaceID, p, audit.Event{
		WorkspaceID: &l.world.WorkspaceID,
		Actor:       "admin",
		Action:      "connector_policy.changed",
		Subject:     "tenant:" + l.world.WorkspaceID.String(),
		RequestID:   "r-1",
	})
	if err != nil {
		l.Fatal(err)
	}
	return change
}

func TestP2_LoweringNarrowsTheGrantsThatExist(t *testing.T) {
	l := newLedger(t)
	app := l.world.Connector("https://api.example.org/v1", both...)
	young, old := l.consented(app, 0), l.consented(app, 20*day)
	writer := l.consented(l.world.Connector("https://api.example.org/v1", perm.ProgrammesWrite), 0)
	linked, _ := l.world.Confidential(both...)
	other := l.consented(linked, 20*day)
	pending := l.grant
	pending.ID, pending.ClientID, pending.Permissions, pending.Ends = uuid.New(), app.ID, app.Required, time.Now().
		Add(30*day)
	l.wantState(grant.Pending)(l.approve(t.Context(), pending))
	dead := pending
	dead.ID = uuid.New()
	l.wantState(grant.Pending)(l.approve(t.Context(), dead))
	l.world.Exec(`update account.grants set created_at = created_at - interval '3 hours' where id = $1`, dead.ID)
	narrow := policyOf(7, workspace.Platforms(), perm.ProgrammesRead)
	effect, err := l.ConnectorPolicyEffect(t.Context(), l.world.WorkspaceID, narrow)
	if want := (policy.Effect{End: 2, Lose: 2, Sooner: 2}); err != nil || effect != want {
		t.Errorf("foretold %+v %v, want %+v", effect, err, want)
	}
	if untouched := l.stored(young); len(untouched.Permissions) != 2 || !untouched.Ends.Equal(young.Ends) {
		t.Error("foretelling changed a grant")
	}
	change := l.limit(narrow)
	if change.Effect != effect || len(change.EndedGrants) != 2 {
		t.Errorf("%+v, foretold %+v", change.Effect, effect)
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
	l.events("grant.narrowed", 2)
	l.events("grant.revoked", 2)
	l.events("connector_policy.changed", 1)
}

func (l *ledger) events(action string, want int) {
	l.Helper()
	var n int
	err := l.world.Owner.QueryRow(l.Context(), `select count(*) from account.audit_events where action = $1 and tenant_id = $2`, action, l.world.WorkspaceID).
		Scan(&n)
	if err != nil || n != want {
		l.Errorf("%s: %d events %v, want %d", action, n, err, want)
	}
}

func TestP3_RaisingWidensNoGrant(t *testing.T) {
	l := newLedger(t)
	app := l.world.Connector("https://api.example.org/v1", both...)
	before := l.consented(app, 0)
	l.limit(policyOf(7, workspace.Platforms(), perm.ProgrammesRead))
	during := l.consented(app, 0)
	lowered := l.stored(before)
	if change := l.limit(workspace.DefaultConnectorPolicy()); !change.Effect.None() {
		t.Errorf("raising touched grants: %+v", change.Effect)
	}
	for _, g := range []grant.Grant{lowered, during} {
		now := l.stored(g)
		if !slices.Equal(now.Permissions, perm.NewSet(perm.ProgrammesRead)) || !now.Ends.Equal(g.Ends) ||
			now.Ends.After(now.Created.Add(7*day+time.Second)) {
			t.Errorf("it is wider: %v until %s", now.Permissions, now.Ends)
		}
	}
	if after := l.consented(app, 0); len(after.Permissions) != 2 || after.Ends.Before(time.Now().Add(29*day)) {
		t.Error("a new consent does not get what the policy allows now")
	}
}

func TestAPlatformThatIsNoLongerAllowedIsCutOff(t *testing.T) {
	l := newLedger(t)
	app := l.world.Connector("https://api.example.org/v1", both...)
	held := l.consented(app, 0)
	change := l.limit(policyOf(30, []workspace.Platform{workspace.ChatGPT, workspace.Other}, perm.ForConnectors()...))
	if change.Effect != (policy.Effect{End: 1}) || l.stored(held).Reason != grant.ByPolicy {
		t.Errorf("%+v", change.Effect)
	}
	refused := l.grant
	refused.ID, refused.ClientID = uuid.New(), app.ID
	if _, err := l.approve(t.Context(), refused); !errors.Is(err, grant.ErrPolicy) {
		t.Errorf("a consent goes through: %v", err)
	}
	l.limit(policyOf(30, nil, perm.ForConnectors()...))
	if _, err := l.approve(t.Context(), refused); !errors.Is(err, grant.ErrPolicy) {
		t.Errorf("no platform is allowed, and a consent goes through: %v", err)
	}
}

func TestTheSamePolicyAgainIsNoEvent(t *testing.T) {
	l := newLedger(t)
	l.limit(workspace.DefaultConnectorPolicy())
	l.events("connector_policy.changed", 0)
	one := policyOf(3, []workspace.Platform{workspace.Claude}, both...)
	l.limit(one)
	l.limit(one)
	l.events("connector_policy.changed", 1)
	found, err := l.ConnectorPolicy(t.Context(), l.world.WorkspaceID)
	if err != nil || !found.Equal(one) {
		t.Errorf("%+v %v", found, err)
	}
	if elsewhere, err := l.ConnectorPolicy(t.Context(), l.world.Workspace("Hillside Youth Club")); err != nil ||
		!elsewhere.Equal(workspace.DefaultConnectorPolicy()) {
		t.Errorf("elsewhere: %+v %v", elsewhere, err)
	}
	if _, err := l.SetConnectorPolicy(t.Context(), uuid.New(), one, audit.Event{}); !errors.Is(
		err,
		admin.ErrNoWorkspace,
	) {
		t.Errorf("a workspace that is not there: %v", err)
	}
}

func TestAPolicyIsReplacedByWhoeverSawIt(t *testing.T) {
	l := newLedger(t)
	first, second := policyOf(
		3,
		[]workspace.Platform{workspace.Claude},
		both...), policyOf(
		5,
		[]workspace.Platform{workspace.Claude},
		both...)
	replace := func(seen, wanted workspace.ConnectorPolicy) error {
		_, err := l.ReplaceConnectorPolicy(t.Context(), l.world.WorkspaceID, seen.Digest(), wanted, audit.Event{
			WorkspaceID: &l.world.WorkspaceID,
			Actor:       "admin",
			Action:      "connector_policy.changed",
			Subject:     "tenant:" + l.world.WorkspaceID.String(),
		})
		return err
	}
	if err := replace(workspace.DefaultConnectorPolicy(), first); err != nil {
		t.Errorf("over the default that nobody chose: %v", err)
	}
	if err := replace(workspace.DefaultConnectorPolicy(), second); !errors.Is(err, policy.ErrChanged) {
		t.Errorf("over a policy that is no more: %v", err)
	}
	if err := replace(workspace.DefaultConnectorPolicy(), first); err != nil {
		t.Errorf("what is so already loses nothing: %v", err)
	}
	if err := replace(first, second); err != nil {
		t.Errorf("over the policy that there is: %v", err)
	}
	l.events("connector_policy.changed", 2)
}

// Approvals and a lowering at the same time: whatever comes first, no grant is wider than the policy afterwards.
func TestP2_NoApprovalSlipsPastALowering(t *testing.T) {
	l := newLedger(t)
	app := l.world.Connector("https://api.example.org/v1", both...)
	wide, narrow := workspace.DefaultConnectorPolicy(), policyOf(1, workspace.Platforms(), perm.ProgrammesRead)
	for range 30 {
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				g := l.grant
				g.ID, g.ClientID, g.Permissions, g.Ends = uuid.New(), app.ID, app.Required, time.Now().Add(30*day)
				l.wantState(grant.Pending)(l.approve(t.Context(), g))
			})
		}
		group.Go(func() { l.limit(narrow) })
		group.Wait()
		var wider int
		err := l.world.Owner.QueryRow(t.Context(), `select count(*) from account.grants
			where state <> 'revoked' and (permissions <> '{programmes:read:programmes}' or ends_at > now() + interval '1 day')`).Scan(&wider)
		if err != nil || wider > 0 {
			t.Fatalf("%d grants slipped through, %v", wider, err)
		}
		l.limit(wide)
	}
}
