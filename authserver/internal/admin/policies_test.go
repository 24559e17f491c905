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

func TestSetConnectorPolicy_ChangesOnlyGivenFields(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	policy := func(days float64, platforms ...string) {
		t.Helper()
		p := b.values(admin.ShowConnectorPolicy{Workspace: b.workspace})
		if p["days"] != days || !slices.Equal(names(p["platforms"]), platforms) ||
			!slices.Equal(names(p["permissions"]), perm.ForConnectors().Strings()) {
			t.Errorf("%v, want %v days, %v", p, days, platforms)
		}
	}
	all, days := []string{"claude", "chatgpt", "other"}, 7
	policy(30, all...)
	held := b.connected()
	change := admin.SetConnectorPolicy{Workspace: b.workspace, Days: &days, DryRun: true}
	b.wants("a dry run", change, map[string]any{"endSooner": 1.0, "changed": false})
	policy(30, all...)
	if !b.Stored(held.Grant).Ends.After(time.Now().AddDate(0, 0, 8)) {
		t.Error("a dry run shortened a grant")
	}
	change.DryRun = false
	b.wants("fewer days", change, map[string]any{"endSooner": 1.0, "ended": 0.0})
	policy(7, all...)
	change = admin.SetConnectorPolicy{Workspace: b.workspace, Platforms: []string{"none"}}
	b.wants("no platform", change, map[string]any{"ended": 1.0})
	policy(7)
	b.WantsGrant("of no platform", held.Grant, grant.Revoked, grant.ByPolicy)
	change.Platforms, change.Permissions = []string{"all"}, []string{"all"}
	b.do(change)
	policy(7, all...)
	b.events(audit.ConnectorPolicyChanged, "tenant:"+b.workspace, 3)
}

func TestSetConnectorPolicy_InvalidChangeIsRefused(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	none, many, ten := 0, 31, 10
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
		change.Workspace = b.workspace
		b.refused(what, change)
	}
	for _, id := range []string{"main", uuid.NewString()} {
		b.refused("show "+id, admin.ShowConnectorPolicy{Workspace: id})
		b.refused("set "+id, admin.SetConnectorPolicy{Workspace: id, Days: &ten})
	}
	b.events(audit.ConnectorPolicyChanged, "tenant:"+b.workspace, 0)
}
