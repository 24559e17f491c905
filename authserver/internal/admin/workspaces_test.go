package admin_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
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
	if text := b.printed(b.do(change), &map[string]any{}); !strings.Contains(text, "1 connected app expires sooner.") {
		t.Error(text)
	}
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

// names returns the texts of a list.
func names(values any) []string {
	list, _ := values.([]any)
	out := make([]string, len(list))
	for i, one := range list {
		out[i], _ = one.(string)
	}
	return out
}

func (b *testEnv) removal() admin.RemoveMember {
	return admin.RemoveMember{Workspace: b.workspace, User: b.user.String()}
}

func TestMembers_PermissionsAreSet(t *testing.T) {
	b := newTestEnv(t)
	id, email := b.added()
	holds := func(what string, want ...string) {
		t.Helper()
		one := find(b.list(admin.ListMembers{Workspace: b.workspace}), "userId", id)
		if one == nil || !slices.Equal(names(one["permissions"]), want) {
			t.Errorf("%s: %v, want %v", what, one, want)
		}
	}
	both := []string{"programmes:read:programmes", "programmes:write:programmes"}
	b.do(admin.AddMember{Workspace: b.workspace, User: email, Permissions: []string{both[1], both[0]}})
	holds("added", both...)
	set := admin.SetPermissions{Workspace: b.workspace, User: id, Permissions: []string{"none"}}
	b.Equal("former", names(b.values(set)["former"]), both)
	holds("none")
	set.Permissions = []string{"all"}
	b.do(set)
	holds("all", perm.FullSet().Strings()...)
	b.events(audit.MemberAdded, "user:"+id, 1)
	b.events(audit.MemberPermissionsChanged, "user:"+id, 2)
	b.WantsRows("events that name workspace and user", 3, `account.audit_events
		where action like 'member.%' and tenant_id = $1 and user_id = $2`, b.workspace, id)
	b.WantsRows("events with what the member held before", 1, `account.audit_events where user_id = $1
		and detail->'former' = '["programmes:read:programmes", "programmes:write:programmes"]'`, id)
}

func TestMembers_InvalidChangeIsRefused(t *testing.T) {
	b := newTestEnv(t)
	user, unknown, stranger := b.user.String(), uuid.NewString(), b.Fixture.User(person()).String()
	add := func(workspace, user string, permissions ...string) admin.Command {
		return admin.AddMember{Workspace: workspace, User: user, Permissions: permissions}
	}
	set := func(user string, permissions ...string) admin.Command {
		return admin.SetPermissions{Workspace: b.workspace, User: user, Permissions: permissions}
	}
	const read = string(perm.ProgrammesRead)
	b.allRefused(map[string]admin.Command{
		"member already":     add(b.workspace, user, read),
		"unknown tenant":     add(unknown, user, read),
		"unknown user":       add(b.workspace, unknown, read),
		"unknown address":    add(b.workspace, "x@example.org", read),
		"tenant of no shape": add("main", stranger, read),
		"unknown permission": add(b.workspace, stranger, "programmes:read"),
		"no permission":      add(b.workspace, stranger),
		"none and one":       set(user, read, "none"),
		"set for a stranger": set(stranger, read),
		"remove a stranger":  admin.RemoveMember{Workspace: b.workspace, User: stranger},
		"list of no tenant":  admin.ListMembers{Workspace: unknown},
	})
	b.WantsRows("members", 1, `account.memberships where tenant_id = $1 or user_id = $2`, b.workspace, stranger)
	b.WantsRows("events of refused changes", 0, `account.audit_events where action like 'member.%' and tenant_id = $1`,
		b.workspace)
}

// changeToken makes a token expired, or one of another workspace.
func (b *testEnv) changeToken(token credential.Secret, set string, args ...any) {
	b.t.Helper()
	b.Fixture.Exec(`update account.personal_access_tokens set `+set+` where hash = $1`,
		append([]any{credential.Hash(token.Reveal())}, args...)...)
}

func TestRemoveMember_RevokesCredentialsOnlyInThatWorkspace(t *testing.T) {
	b := newTestEnv(t)
	held := b.connected()
	_, code := b.Consent(b.app, b.user)
	token, expired := b.Fixture.Token(b.user), b.Fixture.Token(b.user)
	b.changeToken(expired, `expires_at = now()`)
	other, elsewhere := b.Fixture.Member(perm.ProgrammesRead), b.Fixture.Workspace("Elsewhere")
	others := b.Connected(b.app, other)
	b.Fixture.Token(other)
	b.Fixture.Join(elsewhere, b.user, perm.ProgrammesRead)
	b.changeToken(b.Fixture.Token(b.user), `tenant_id = $2`, elsewhere)

	b.wants("removed", b.removal(), map[string]any{"revokedGrants": 2.0, "revokedTokens": 1.0})
	b.WantsGrant("of the member", held.Grant, grant.Revoked, grant.MembershipOver)
	b.events(audit.MemberRemoved, "user:"+b.user.String(), 1)
	b.events(audit.GrantRevoked, "grant:"+held.Grant.ID.String(), 1)
	b.WantsRows("events of tokens", 1, `account.audit_events where action = '`+audit.TokenRevoked+`'
		and actor = 'admin' and user_id = $1 and detail->>'reason' = 'membership_ended'`, b.user)
	b.Wants("a refresh", b.Refresh(b.app, held.Refresh), 400, "invalid_grant")
	b.Fixture.Join(b.Fixture.WorkspaceID, b.user, perm.ProgrammesRead) // a member again
	answer := b.Form(apitest.TokenPath, "grant_type", "authorization_code", "client_id", b.app.ID.String(), "resource",
		b.app.Resource, "code", code.Reveal(), "code_verifier", apitest.Verifier, "redirect_uri", fixture.Callback)
	b.Wants("a code of before", answer, 400, "invalid_grant")
	b.WantsRows("tokens left: of the other user, of the other workspace, and expired", 3,
		`account.personal_access_tokens where revoked_at is null and user_id in ($1, $2)`, b.user, other)
	b.WantsRows("tokens with the reason", 1, `account.personal_access_tokens
		where hash = $1 and revoke_reason = 'membership_ended'`, credential.Hash(token.Reveal()))
	b.Refreshed(b.app, others)
}

func TestRemoveMember_IsPropagatedToRedis(t *testing.T) {
	b := newTestEnv(t)
	held := b.connected()
	b.do(b.removal())
	// The revocation is undone in Postgres, so that only Redis refuses.
	b.Fixture.Exec(`update account.grants set state = 'active', revoked_at = null, revoke_reason = null where id = $1`,
		held.Grant.ID)
	b.Fixture.Join(b.Fixture.WorkspaceID, b.user, perm.ProgrammesRead)
	b.Wants("only Redis refuses", b.Refresh(b.app, held.Refresh), 400, "invalid_grant")
}

func TestRemoveMember_WorksWithoutRedis(t *testing.T) {
	b := ownTestEnv(t)
	held := b.connected()
	b.Redis.Kill()
	b.do(b.removal())
	b.WantsGrant("without Redis", held.Grant, grant.Revoked, grant.MembershipOver)
}

// A removal that fails changes nothing. One of many grants says that the servers revoke the rest.
func TestRemoveMember_IsAllOrNothing(t *testing.T) {
	b := ownTestEnv(t)
	held := b.connected()
	b.Fixture.Token(b.user, perm.ProgrammesRead)
	b.Fixture.Exec(`alter table account.personal_access_tokens add constraint no_revocation check (revoked_at is null)`)
	if _, err := b.service.Run(t.Context(), b.removal()); err == nil {
		t.Error("the removal reports success")
	}
	b.WantsGrant("after a failure", held.Grant, grant.Active, "")
	b.WantsRows("members", 1, `account.memberships where user_id = $1`, b.user)
	b.events(audit.MemberRemoved, "user:"+b.user.String(), 0)
	b.Refreshed(b.app, held)
	b.Fixture.Exec(`alter table account.personal_access_tokens drop constraint no_revocation`)
	b.manyGrants(600, 0)
	removed := b.do(b.removal()).(admin.Outcome).Sentence
	b.Contains("the sentence", removed, "The others no longer work. The servers revoke them in the background.")
}

// An operator adds a user with an address that was never proven only after confirming it: another person may have made
// the account.
func TestProven_OperatorAddsOnlyProvenUsers(t *testing.T) {
	b := ownTestEnv(t)
	id, email := b.added()
	proven := func(want any) {
		t.Helper()
		if got := b.values(admin.ShowUser{User: id}); got["emailProvenBy"] != want ||
			(got["emailProvenAt"] == nil) != (want == nil) {
			t.Errorf("%v, want proven by %v", got, want)
		}
	}
	unproven := func(c admin.Command) {
		t.Helper()
		if _, err := b.service.Run(t.Context(), c); !errors.Is(err, admin.ErrUnproven) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	proven("operator")
	b.Fixture.Exec(`update account.users set email_proven_at = null, email_proven_by = null`)
	all := admin.AddMember{Workspace: b.workspace, User: email, Permissions: []string{"all"}}
	unproven(all)
	all.User = id
	unproven(all)
	member := uuid.MustParse(id)
	b.Fixture.Join(b.Fixture.WorkspaceID, member, perm.AccountAPIAccess, perm.ProgrammesRead)
	set := admin.SetPermissions{Workspace: b.workspace, User: id, Permissions: []string{
		"account:api:access", "programmes:read:programmes", "programmes:write:programmes",
	}}
	unproven(set)
	b.Equal("appointed", len(b.list(admin.AppointManagers{Workspace: b.workspace})), 0)
	set.Permissions = []string{"programmes:read:programmes"}
	b.do(set)
	b.Fixture.Exec(`delete from account.memberships where user_id = $1`, member)
	proven(nil)
	b.do(admin.SetEmail{User: id, Email: "president@example.org"})
	b.WantsRows("proven by an operator's change of the address", 0, `account.users where email_proven_at is not null`)
	if err := (admin.ConfirmEmail{}).Check(); err == nil {
		t.Error("without a user, all addresses are confirmed")
	}
	b.do(admin.ConfirmEmail{All: true})
	b.do(admin.ConfirmEmail{User: id}) // again
	all.User = "president@example.org"
	b.do(all)
	b.events(audit.UserEmailProven, "user:"+id, 1)
}

func TestAppointManagers_GivesToAdministratorsWhereNobodyManages(t *testing.T) {
	b := ownTestEnv(t)
	unmanaged, managed := b.Fixture.WorkspaceID, b.Fixture.Workspace("Managed")
	administrator := b.Fixture.Member(perm.AccountAPIAccess, perm.ProgrammesRead)
	disabled := b.Fixture.Member(perm.AccountAPIAccess, perm.AccountWriteMembers)
	b.Fixture.Exec(`update account.users set disabled_at = now() where id = $1`, disabled)
	b.Fixture.Join(managed, administrator, perm.AccountAPIAccess)
	b.Fixture.Join(managed, b.user, perm.AccountReadMembers, perm.AccountWriteMembers)

	appointed := b.list(admin.AppointManagers{})
	if len(appointed) != 1 || appointed[0]["userId"] != administrator.String() ||
		appointed[0]["tenantId"] != unmanaged.String() {
		t.Errorf("appointed %v", appointed)
	}
	b.WantsRows("managers with their former permissions", 1, `account.memberships where tenant_id = $1 and user_id = $2
		and permissions @> '{account:read:members,account:write:members}'
		and permissions @> '{account:api:access,programmes:read:programmes}'`, unmanaged, administrator)
	b.WantsRows("managers", 2, `account.memberships
		where permissions @> '{account:read:members,account:write:members}'`)
	b.events(audit.MemberPermissionsChanged, "user:"+administrator.String(), 1)
	b.Equal("a second run", len(b.list(admin.AppointManagers{})), 0)
	b.events(audit.MemberPermissionsChanged, "user:"+administrator.String(), 1)
}

func TestAppointManagers_OfOneWorkspace(t *testing.T) {
	b := newTestEnv(t)
	administrator, other := b.Fixture.Member(perm.AccountAPIAccess), b.Fixture.Workspace("Other")
	b.Fixture.Join(other, administrator, perm.AccountAPIAccess)
	appointed := b.list(admin.AppointManagers{Workspace: other.String()})
	if len(appointed) != 1 || appointed[0]["tenantId"] != other.String() {
		t.Errorf("appointed %v", appointed)
	}
	b.refused("unknown workspace", admin.AppointManagers{Workspace: uuid.NewString()})
	b.refused("no id", admin.AppointManagers{Workspace: "main"})
}
