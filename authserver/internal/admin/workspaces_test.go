package admin_test

import (
	"reflect"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
)

func TestAddWorkspace_BelongsToOrganisation(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	ctx := t.Context()
	organisation := b.text(b.values(b.service.AddOrganisation(ctx, " Harbour Trust ")), "id")
	b.events(audit.OrganisationAdded, "organisation:"+organisation, 1)
	workspace := b.text(b.values(b.service.AddWorkspace(ctx, organisation, "Harbour Kitchen")), "id")
	b.events(audit.WorkspaceAdded, "tenant:"+workspace, 1)
	const added = `select count(*) from account.audit_events
		where action = '` + audit.WorkspaceAdded + `' and tenant_id = $1`
	if n := b.Count(added, workspace); n != 1 {
		t.Error("the event does not name its workspace")
	}
	all := b.list(b.service.Organisations(ctx))
	if len(all) != 2 || all[0]["name"] != "Harbour Trust" || all[0]["id"] != organisation {
		t.Errorf("organisations: %v", all)
	}
	if every := b.list(b.service.Workspaces(ctx, "")); len(every) != 2 {
		t.Errorf("tenants: %v", every)
	}
	own := b.list(b.service.Workspaces(ctx, organisation))
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
		got := b.values(b.service.SetModule(ctx, workspace, "programmes", c.changes))
		if got["enabled"] != c.enabled || got["provisioned"] != c.provisioned {
			t.Errorf("%v: %v", c.changes, got)
		}
	}
	b.events(audit.ModuleChanged, "tenant:"+workspace, 5)
	b.values(b.service.SetFeature(ctx, workspace, "llm_integration", "off"))
	if n := b.Count(`select count(*) from account.tenant_features where not enabled`); n != 1 {
		t.Error("the feature is still on")
	}
	b.values(b.service.SetFeature(ctx, workspace, "llm_integration", "on"))
	b.events(audit.FeatureChanged, "tenant:"+workspace, 2)
	listed := b.list(b.service.Workspaces(ctx, ""))[0]
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
		result, err := b.service.AddOrganisation(ctx, name)
		b.refused("organisation "+name, result, err)
		result, err = b.service.AddWorkspace(ctx, unknown, name)
		b.refused("tenant "+name, result, err)
	}
	for what, try := range map[string]func() error{
		"unknown organisation": func() error {
			_, err := b.service.AddWorkspace(ctx, unknown, "Kitchen")
			return err
		},
		"malformed organisation": func() error {
			_, err := b.service.AddWorkspace(ctx, "trust", "Kitchen")
			return err
		},
		"list of malformed organisation": func() error {
			_, err := b.service.Workspaces(ctx, "trust")
			return err
		},
		"module of unknown tenant": func() error {
			_, err := b.service.SetModule(ctx, unknown, "engage", []string{
				"enable",
			})
			return err
		},
		"module of no tenant": func() error {
			_, err := b.service.SetModule(ctx, "x", "engage", []string{
				"enable",
			})
			return err
		},
		"unknown module": func() error {
			_, err := b.service.SetModule(ctx, workspace, "account", []string{
				"enable",
			})
			return err
		},
		"no change": func() error { _, err := b.service.SetModule(ctx, workspace, "engage", nil); return err },
		"unknown change": func() error {
			_, err := b.service.SetModule(ctx, workspace, "engage", []string{
				"on",
			})
			return err
		},
		"contradiction": func() error {
			_, err := b.service.SetModule(ctx, workspace, "engage", []string{"enable", "disable"})
			return err
		},
		"feature of unknown tenant": func() error {
			_, err := b.service.SetFeature(ctx, unknown, "llm_integration", "on")
			return err
		},
		"unknown feature": func() error {
			_, err := b.service.SetFeature(ctx, workspace, "llm", "on")
			return err
		},
		"a feature neither on nor off": func() error {
			_, err := b.service.SetFeature(ctx, workspace, "llm_integration", "maybe")
			return err
		},
	} {
		b.refused(what, nil, try())
	}
	if n := b.Count(`select count(*) from account.audit_events`); n != before {
		t.Errorf("%d events of refused changes", n-before)
	}
}
