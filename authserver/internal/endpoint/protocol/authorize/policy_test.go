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

func readOnly(days int) workspace.ConnectorPolicy {
	read := perm.NewSet(perm.ProgrammesRead)
	return workspace.ConnectorPolicy{Platforms: workspace.Platforms(), Permissions: read, Days: days}
}

func TestPolicy_LimitsConnectorPermissionsAndLifetime(t *testing.T) {
	site := shared(t)
	ada := site.SignedIn(site.Member(perm.ProgrammesRead, perm.ProgrammesWrite))
	assistant := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead, perm.ProgrammesWrite)
	site.LimitConnectors(readOnly(7))
	page := ada.Get(request(connector(assistant)))
	page.Wants(http.StatusOK, "7 days", "Not allowed by the workspace's connector policy", "Add and change programmes",
		"in Settings, under Connectors")
	page.Lacks("All permissions above")
	g := granted(t, site, assistant, approve(page))
	life, want := time.Until(g.Ends), perm.NewSet(perm.ProgrammesRead)
	if !slices.Equal(g.Permissions, want) || life > 7*24*time.Hour || life < 7*24*time.Hour-time.Minute {
		t.Errorf("%v for %s", g.Permissions, life)
	}
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead, perm.ProgrammesWrite)
	ada.Get(request(confidential(app))).Wants(http.StatusOK, "90 days").Lacks("policy")
}

func TestPolicy_RefusalNamesWhoCanChangeIt(t *testing.T) {
	site := shared(t)
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
		open := ada.Get(request(connector(assistant)))
		open.As(name).Wants(http.StatusOK)
		site.LimitConnectors(c.policy)
		for when, page := range map[string]*browsertest.Page{
			"before the page": ada.Get(request(connector(assistant))),
			"after the page":  approve(open),
		} {
			page.As(name, when).Wants(http.StatusForbidden, c.words, "People who can manage API access").LeadsTo("")
		}
		manager.Get(request(connector(assistant))).As(name).Wants(http.StatusForbidden, "Open the policy")
	}
	site.Rows(0, "grants", "")
	site.Fixture.Exec(`update account.oauth_clients set connector_platform = 'chatgpt' where id = $1`, assistant.ID)
	site.LimitConnectors(workspace.ConnectorPolicy{Platforms: others, Permissions: perm.ForConnectors(), Days: 30})
	ada.Get(request(connector(assistant))).Wants(http.StatusOK)
}

func TestPolicy_NarrowedGrantGivesNarrowTokens(t *testing.T) {
	site := shared(t)
	ada := site.SignedIn(site.Member(perm.ProgrammesRead, perm.ProgrammesWrite))
	assistant := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead, perm.ProgrammesWrite)
	code := callback(t, approve(ada.Get(request(connector(assistant))))).Get("code")
	second := callback(t, approve(ada.Get(request(connector(assistant), "state", "another")))).Get("code")
	site.LimitConnectors(readOnly(1))
	issued, err := redeem(site, assistant, code, challenge)
	if err != nil || !slices.Equal(issued.Grant.Permissions, perm.NewSet(perm.ProgrammesRead)) ||
		time.Until(issued.Grant.Ends) > 24*time.Hour {
		t.Errorf("%+v %v", issued.Grant, err)
	}
	site.LimitConnectors(workspace.ConnectorPolicy{Permissions: perm.ForConnectors(), Days: 1})
	if _, err := redeem(site, assistant, second, challenge); err == nil {
		t.Error("the code works although its platform is not allowed")
	}
	site.Rows(2, "grants", "revoke_reason = $1", grant.ByPolicy)
}
