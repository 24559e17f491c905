package admin_test

import (
	"reflect"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/admin"
)

func TestAddWorkspace_BelongsToOrganisation(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	organisation := b.text(b.values(admin.AddOrganisation{Name: " Harbour Trust "}), "id")
	b.events(audit.OrganisationAdded, "organisation:"+organisation, 1)
	workspace := b.text(b.values(admin.AddWorkspace{Organisation: organisation, Name: "Harbour Kitchen"}), "id")
	b.events(audit.WorkspaceAdded, "tenant:"+workspace, 1)
	b.WantsRows("events that name the workspace", 1, `account.audit_events where tenant_id = $1
		and action = '`+audit.WorkspaceAdded+`'`, workspace)
	if one := find(b.list(admin.ListOrganisations{}), "id", organisation); one["name"] != "Harbour Trust" {
		t.Errorf("organisation: %v", one)
	}
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
	t.Parallel()
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
	t.Parallel()
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
