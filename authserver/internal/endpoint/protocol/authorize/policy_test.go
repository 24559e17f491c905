package authorize_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func TestPolicy_LimitsConnectorPermissionsAndLifetime(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := site.SignedIn(site.Member(perm.ProgrammesRead, perm.ProgrammesWrite))
	assistant := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead, perm.ProgrammesWrite)
	site.LimitConnectors(
		workspace.ConnectorPolicy{
			Platforms:   workspace.Platforms(),
			Permissions: perm.NewSet(perm.ProgrammesRead),
			Days:        7,
		},
	)
	page := ada.Get(request(connector(assistant), nil))
	for _, words := range []string{
		"7 days",
		"Not allowed by the workspace's connector policy",
		"Add and change programmes",
		"in Settings, under Connectors",
	} {
		if page.Status != http.StatusOK || !page.HasText(words) {
			t.Errorf("%d, without %q: %s", page.Status, words, page.Text())
		}
	}
	if page.HasText("All permissions above") {
		t.Error("two presets for one permission")
	}
	code := callback(t, approve(page)).Get("code")
	issued, err := redeem(site, assistant, code, challenge)
	if err != nil {
		t.Fatal(err)
	}
	life, want := time.Until(issued.Grant.Ends), perm.NewSet(perm.ProgrammesRead)
	if !slices.Equal(issued.Grant.Permissions, want) || life > 7*24*time.Hour || life < 7*24*time.Hour-time.Minute {
		t.Errorf("%v for %s", issued.Grant.Permissions, life)
	}
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead, perm.ProgrammesWrite)
	if page := ada.Get(request(confidential(app), nil)); page.Status != http.StatusOK || page.HasText("policy") ||
		!page.HasText("90 days") {
		t.Errorf("the policy applies to a confidential client: %s", page.Text())
	}
}

func TestPolicy_RefusalNamesWhoCanChangeIt(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := site.SignedIn(site.Member(perm.ProgrammesRead))
	manager := site.SignedIn(site.Member(perm.ProgrammesRead, perm.AccountAPIAccess))
	assistant := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	others := []workspace.Platform{workspace.ChatGPT, workspace.Other}
	for name, c := range map[string]struct {
		policy workspace.ConnectorPolicy
		words  string
	}{
		"platform": {
			workspace.ConnectorPolicy{Platforms: others, Permissions: perm.ForConnectors(), Days: 30},
			"belongs to Claude",
		},
		"permission": {
			workspace.ConnectorPolicy{
				Platforms:   workspace.Platforms(),
				Permissions: perm.NewSet(perm.EngageReadForms),
				Days:        30,
			},
			"does not allow for connectors",
		},
	} {
		site.LimitConnectors(workspace.DefaultConnectorPolicy())
		open := ada.Get(request(connector(assistant), nil))
		if open.Status != http.StatusOK {
			t.Fatalf("%s: %d %s", name, open.Status, open.Text())
		}
		site.LimitConnectors(c.policy)
		for when, page := range map[string]*browsertest.Page{
			"before the page": ada.Get(request(connector(assistant), nil)),
			"after the page":  approve(open),
		} {
			if page.Status != http.StatusForbidden || page.Location() != "" || !page.HasText(c.words) ||
				!page.HasText("People who can manage API access") {
				t.Errorf("%s, %s: %d %s", name, when, page.Status, page.Text())
			}
		}
		if page := manager.Get(request(connector(assistant), nil)); page.Status != http.StatusForbidden ||
			!page.HasText("Open the policy") {
			t.Errorf("%s: page of a user who may change it: %s", name, page.Text())
		}
	}
	if n := site.Count(`select count(*) from account.grants`); n != 0 {
		t.Errorf("%d grants", n)
	}
	site.Fixture.Exec(`update account.oauth_clients set connector_platform = 'chatgpt'`)
	site.LimitConnectors(workspace.ConnectorPolicy{Platforms: others, Permissions: perm.ForConnectors(), Days: 30})
	if page := ada.Get(request(connector(assistant), nil)); page.Status != http.StatusOK {
		t.Errorf("allowed platform: %d %s", page.Status, page.Text())
	}
}

func TestPolicy_NarrowedGrantGivesNarrowTokens(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := site.SignedIn(site.Member(perm.ProgrammesRead, perm.ProgrammesWrite))
	assistant := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead, perm.ProgrammesWrite)
	code := callback(t, approve(ada.Get(request(connector(assistant), nil)))).Get("code")
	another := map[string]string{"state": "another"}
	second := callback(t, approve(ada.Get(request(connector(assistant), another)))).Get("code")
	site.LimitConnectors(
		workspace.ConnectorPolicy{
			Platforms:   workspace.Platforms(),
			Permissions: perm.NewSet(perm.ProgrammesRead),
			Days:        1,
		},
	)
	issued, err := redeem(site, assistant, code, challenge)
	if err != nil || !slices.Equal(issued.Grant.Permissions, perm.NewSet(perm.ProgrammesRead)) ||
		time.Until(issued.Grant.Ends) > 24*time.Hour {
		t.Errorf("%+v %v", issued.Grant, err)
	}
	site.LimitConnectors(workspace.ConnectorPolicy{Permissions: perm.ForConnectors(), Days: 1})
	if _, err := redeem(site, assistant, second, challenge); err == nil || err.Error() == "" ||
		site.Count(`select count(*) from account.grants where revoke_reason = $1`, grant.ByPolicy) != 2 {
		t.Errorf("the code works although its platform is not allowed: %v", err)
	}
}
