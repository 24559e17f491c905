package admin_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func TestAddWorkspace_BelongsToOrganisation(t *testing.T) {
	b := newTestEnv(t)
	organisation := b.text(b.values(admin.AddOrganisation{Name: " Harbour Trust "}), "id")
	b.events(audit.OrganisationAdded, "organisation:"+organisation, 1)
	workspace := b.text(b.values(admin.AddWorkspace{Organisation: organisation, Name: "Harbour Kitchen"}), "id")
	b.events(audit.WorkspaceAdded, "tenant:"+workspace, 1)
	b.WantsRows("events that name the workspace", 1, `account.audit_events where tenant_id = $1
		and action = '`+audit.WorkspaceAdded+`'`, workspace)
	organisations := b.list(admin.ListOrganisations{})
	b.Equal("organisation", find(organisations, "id", organisation)["name"], "Harbour Trust")
	every := b.list(admin.ListWorkspaces{})
	if find(every, "id", workspace) == nil || find(every, "id", b.workspace) == nil {
		t.Errorf("tenants: %v", every)
	}
	own := b.list(admin.ListWorkspaces{Organisation: organisation})
	if len(own) != 1 || own[0]["id"] != workspace || own[0]["name"] != "Harbour Kitchen" ||
		own[0]["organisation"] != "Harbour Trust" || len(names(own[0]["modules"])) != 0 ||
		len(names(own[0]["features"])) != 0 {
		t.Errorf("its tenants: %v", own)
	}
}

func TestSetModule_ChangesStateStepByStep(t *testing.T) {
	b := newTestEnv(t)
	b.Fixture.Exec(`delete from account.tenant_modules where tenant_id = $1`, b.workspace)
	for _, c := range []struct {
		changes              []string
		enabled, provisioned bool
	}{
		{[]string{"enable"}, true, false}, {[]string{"provision"}, true, true}, {[]string{"disable"}, false, true},
		{[]string{"enable", "unprovision"}, true, false}, {[]string{"provision", "enable"}, true, true},
	} {
		b.wants("module", admin.SetModule{Workspace: b.workspace, Module: "programmes", Changes: c.changes},
			map[string]any{"enabled": c.enabled, "provisioned": c.provisioned})
	}
	b.events(audit.ModuleChanged, "tenant:"+b.workspace, 5)
	feature := admin.SetFeature{Workspace: b.workspace, Feature: "llm_integration", State: "off"}
	b.do(feature)
	b.WantsRows("features that are off", 1, `account.tenant_features where not enabled and tenant_id = $1`, b.workspace)
	feature.State = "on"
	b.do(feature)
	b.events(audit.FeatureChanged, "tenant:"+b.workspace, 2)
	listed := find(b.list(admin.ListWorkspaces{}), "id", b.workspace)
	if !reflect.DeepEqual(listed["features"], []any{"llm_integration"}) || !reflect.DeepEqual(listed["modules"],
		[]any{map[string]any{"name": "programmes", "enabled": true, "provisioned": true}}) {
		t.Errorf("listed as %v", listed)
	}
}

func TestWorkspaces_InvalidChangeIsRefused(t *testing.T) {
	b := newTestEnv(t)
	unknown := uuid.NewString()
	for _, name := range []string{"", "   ", "a\nb", "\u202e"} {
		b.refused("organisation "+name, admin.AddOrganisation{Name: name})
		b.refused("tenant "+name, admin.AddWorkspace{Organisation: unknown, Name: name})
	}
	module := func(workspace, module string, changes ...string) admin.Command {
		return admin.SetModule{Workspace: workspace, Module: module, Changes: changes}
	}
	feature := func(workspace, feature, state string) admin.Command {
		return admin.SetFeature{Workspace: workspace, Feature: feature, State: state}
	}
	b.allRefused(map[string]admin.Command{
		"unknown organisation":           admin.AddWorkspace{Organisation: unknown, Name: "Kitchen"},
		"malformed organisation":         admin.AddWorkspace{Organisation: "trust", Name: "Kitchen"},
		"list of malformed organisation": admin.ListWorkspaces{Organisation: "trust"},
		"module of unknown tenant":       module(unknown, "engage", "enable"),
		"module of no tenant":            module("x", "engage", "enable"),
		"unknown module":                 module(b.workspace, "account", "enable"),
		"no change":                      module(b.workspace, "engage"),
		"unknown change":                 module(b.workspace, "engage", "on"),
		"contradiction":                  module(b.workspace, "engage", "enable", "disable"),
		"feature of unknown tenant":      feature(unknown, "llm_integration", "on"),
		"unknown feature":                feature(b.workspace, "llm", "on"),
		"a feature neither on nor off":   feature(b.workspace, "llm_integration", "maybe"),
	})
	b.WantsRows("events of refused changes", 0, `account.audit_events where tenant_id = $1`, b.workspace)
}

func TestSetConnectorPolicy_ChangesOnlyGivenFields(t *testing.T) {
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
