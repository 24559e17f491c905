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
	ctx := t.Context()
	organisation := b.text(b.values(b.do(ctx, admin.AddOrganisation{Name: " Harbour Trust "})), "id")
	b.events(audit.OrganisationAdded, "organisation:"+organisation, 1)
	workspace := b.text(
		b.values(b.do(ctx, admin.AddWorkspace{Organisation: organisation, Name: "Harbour Kitchen"})), "id")
	b.events(audit.WorkspaceAdded, "tenant:"+workspace, 1)
	const added = `select count(*) from account.audit_events
		where action = '` + audit.WorkspaceAdded + `' and tenant_id = $1`
	if n := b.Count(added, workspace); n != 1 {
		t.Error("the event does not name its workspace")
	}
	all := b.list(b.do(ctx, admin.ListOrganisations{}))
	if len(all) != 2 || all[0]["name"] != "Harbour Trust" || all[0]["id"] != organisation {
		t.Errorf("organisations: %v", all)
	}
	if every := b.list(b.do(ctx, admin.ListWorkspaces{})); len(every) != 2 {
		t.Errorf("tenants: %v", every)
	}
	own := b.list(b.do(ctx, admin.ListWorkspaces{Organisation: organisation}))
	if len(own) != 1 || own[0]["id"] != workspace || own[0]["name"] != "Harbour Kitchen" ||
		own[0]["organisation"] != "Harbour Trust" ||
		len(own[0]["modules"].([]any)) != 0 ||
		len(own[0]["features"].([]any)) != 0 {
		t.Errorf("its tenants: %v", own)
	}
}

func TestSetModule_ChangesStateStepByStep(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	ctx := t.Context()
	workspace := b.Fixture.WorkspaceID.String()
	b.Fixture.Exec(`delete from account.tenant_modules`)
	for _, c := range []struct {
		changes              []string
		enabled, provisioned bool
	}{
		{[]string{"enable"}, true, false}, {[]string{"provision"}, true, true}, {[]string{"disable"}, false, true},
		{[]string{"enable", "unprovision"}, true, false}, {[]string{"provision", "enable"}, true, true},
	} {
		got := b.values(b.do(ctx, admin.SetModule{Workspace: workspace, Module: "programmes", Changes: c.changes}))
		if got["enabled"] != c.enabled || got["provisioned"] != c.provisioned {
			t.Errorf("%v: %v", c.changes, got)
		}
	}
	b.events(audit.ModuleChanged, "tenant:"+workspace, 5)
	b.values(b.do(ctx, admin.SetFeature{Workspace: workspace, Feature: "llm_integration", State: "off"}))
	if n := b.Count(`select count(*) from account.tenant_features where not enabled`); n != 1 {
		t.Error("the feature is still on")
	}
	b.values(b.do(ctx, admin.SetFeature{Workspace: workspace, Feature: "llm_integration", State: "on"}))
	b.events(audit.FeatureChanged, "tenant:"+workspace, 2)
	listed := b.list(b.do(ctx, admin.ListWorkspaces{}))[0]
	if !reflect.DeepEqual(listed["features"], []any{"llm_integration"}) ||
		!reflect.DeepEqual(
			listed["modules"],
			[]any{map[string]any{"name": "programmes", "enabled": true, "provisioned": true}},
		) {
		t.Errorf("listed as %v", listed)
	}
}

func TestWorkspaces_InvalidChangeIsRefused(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	ctx := t.Context()
	workspace, unknown := b.Fixture.WorkspaceID.String(), uuid.NewString()
	before := b.Count(`select count(*) from account.audit_events`)
	for _, name := range []string{"", "   ", "a\nb", "\u202e"} {
		result, err := b.do(ctx, admin.AddOrganisation{Name: name})
		b.refused("organisation "+name, result, err)
		result, err = b.do(ctx, admin.AddWorkspace{Organisation: unknown, Name: name})
		b.refused("tenant "+name, result, err)
	}
	for what, try := range map[string]func() error{
		"unknown organisation": func() error {
			_, err := b.do(ctx, admin.AddWorkspace{Organisation: unknown, Name: "Kitchen"})
			return err
		},
		"malformed organisation": func() error {
			_, err := b.do(ctx, admin.AddWorkspace{Organisation: "trust", Name: "Kitchen"})
			return err
		},
		"list of malformed organisation": func() error {
			_, err := b.do(ctx, admin.ListWorkspaces{Organisation: "trust"})
			return err
		},
		"module of unknown tenant": func() error {
			_, err := b.do(ctx, admin.SetModule{Workspace: unknown, Module: "engage", Changes: []string{
				"enable",
			}})
			return err
		},
		"module of no tenant": func() error {
			_, err := b.do(ctx, admin.SetModule{Workspace: "x", Module: "engage", Changes: []string{
				"enable",
			}})
			return err
		},
		"unknown module": func() error {
			_, err := b.do(ctx, admin.SetModule{Workspace: workspace, Module: "account", Changes: []string{
				"enable",
			}})
			return err
		},
		"no change": func() error {
			_, err := b.do(ctx, admin.SetModule{Workspace: workspace, Module: "engage"})
			return err
		},
		"unknown change": func() error {
			_, err := b.do(ctx, admin.SetModule{Workspace: workspace, Module: "engage", Changes: []string{
				"on",
			}})
			return err
		},
		"contradiction": func() error {
			both := []string{"enable", "disable"}
			_, err := b.do(ctx, admin.SetModule{Workspace: workspace, Module: "engage", Changes: both})
			return err
		},
		"feature of unknown tenant": func() error {
			_, err := b.do(ctx, admin.SetFeature{Workspace: unknown, Feature: "llm_integration", State: "on"})
			return err
		},
		"unknown feature": func() error {
			_, err := b.do(ctx, admin.SetFeature{Workspace: workspace, Feature: "llm", State: "on"})
			return err
		},
		"a feature neither on nor off": func() error {
			_, err := b.do(ctx, admin.SetFeature{Workspace: workspace, Feature: "llm_integration", State: "maybe"})
			return err
		},
	} {
		b.refused(what, nil, try())
	}
	if n := b.Count(`select count(*) from account.audit_events`); n != before {
		t.Errorf("%d events of refused changes", n-before)
	}
}
