package admin_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func (b *testEnv) policy() map[string]any {
	b.t.Helper()
	return b.values(b.do(b.t.Context(), admin.ShowConnectorPolicy{Workspace: b.Fixture.WorkspaceID.String()}))
}

func names(values any) []string {
	list, _ := values.([]any)
	out := make([]string, len(list))
	for i, one := range list {
		out[i], _ = one.(string)
	}
	return out
}

func TestSetConnectorPolicy_ChangesOnlyGivenFields(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	workspace, days := b.Fixture.WorkspaceID.String(), 7
	if p := b.policy(); !slices.Equal(names(p["platforms"]), []string{"claude", "chatgpt", "other"}) ||
		p["days"] != 30.0 ||
		!slices.Equal(names(p["permissions"]), perm.ForConnectors().Strings()) {
		t.Errorf("%v", p)
	}
	held := b.Connected(b.app, b.user)
	preview := b.values(b.do(t.Context(),
		admin.SetConnectorPolicy{Workspace: workspace, Days: &days, DryRun: true}))
	if preview["endSooner"] != 1.0 || preview["changed"] != false || b.policy()["days"] != 30.0 ||
		!b.Stored(held.Grant).Ends.After(time.Now().AddDate(0, 0, 8)) {
		t.Errorf("a dry run: %v", preview)
	}
	if got := b.values(b.do(t.Context(), admin.SetConnectorPolicy{
		Workspace: workspace,
		Days:      &days,
	})); got["endSooner"] != 1.0 ||
		got["ended"] != 0.0 {
		t.Errorf("%v", got)
	}
	if p := b.policy(); p["days"] != 7.0 || len(names(p["platforms"])) != 3 {
		t.Errorf("%v", p)
	}
	if got := b.values(b.do(t.Context(), admin.SetConnectorPolicy{
		Workspace: workspace,
		Platforms: []string{"none"},
	})); got["ended"] != 1.0 {
		t.Errorf("%v", got)
	}
	if g := b.Stored(held.Grant); g.State != grant.Revoked || g.Reason != grant.ByPolicy {
		t.Errorf("%s %s", g.State, g.Reason)
	}
	b.values(
		b.do(
			t.Context(),
			admin.SetConnectorPolicy{Workspace: workspace, Platforms: []string{"all"}, Permissions: []string{"all"}},
		),
	)
	if p := b.policy(); p["days"] != 7.0 || len(names(p["platforms"])) != 3 ||
		len(names(p["permissions"])) != len(perm.ForConnectors()) {
		t.Errorf("%v", p)
	}
	b.events(audit.ConnectorPolicyChanged, "tenant:"+workspace, 3)
}

func TestSetConnectorPolicy_InvalidChangeIsRefused(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	workspace, none, many, ten := b.Fixture.WorkspaceID.String(), 0, 31, 10
	for what, change := range map[string]admin.SetConnectorPolicy{
		"nothing":                  {},
		"no days":                  {Days: &none},
		"too many days":            {Days: &many},
		"unknown platform":         {Platforms: []string{"gemini"}},
		"none and another":         {Platforms: []string{"none", "claude"}},
		"unknown permission":       {Permissions: []string{"programmes:read:all"}},
		"not for connectors":       {Permissions: []string{string(perm.AccountAPIAccess)}},
		"a write without its read": {Permissions: []string{string(perm.ProgrammesWrite)}},
	} {
		change.Workspace = workspace
		result, err := b.do(t.Context(), change)
		b.refused(what, result, err)
	}
	for _, id := range []string{"main", uuid.NewString()} {
		result, err := b.do(t.Context(), admin.ShowConnectorPolicy{Workspace: id})
		b.refused("show "+id, result, err)
		result, err = b.do(t.Context(), admin.SetConnectorPolicy{Workspace: id, Days: &ten})
		b.refused("set "+id, result, err)
	}
	b.events(audit.ConnectorPolicyChanged, "tenant:"+workspace, 0)
}
