package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// The connector policy of a workspace: lowering it narrows existing connections at their next request; raising it
// widens none.

var (
	everyPlatform   = []string{"claude", "chatgpt", "other"}
	everyPermission = harness.ForConnectors()
)

func TestConnectorPolicy_LoweringNarrowsExistingConnections(t *testing.T) {
	p, ws := inWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes)
	tokens := connector.Connect(t, p.Person(t, ws.Owner))
	grant := harness.GrantOf(t, tokens.AccessToken)
	write := func(token string) harness.Answer {
		t.Helper()
		return p.In(ws.Workspace, token).
			JSON(t, http.MethodPost, programmes, map[string]any{"name": "Warm rooms", "summary": "Open on Sundays"})
	}
	write(tokens.AccessToken).Wants(t, http.StatusCreated)
	warned := p.LimitConnectors(t, ws, "7", everyPlatform, []string{harness.ReadProgrammes})
	for _, words := range []string{"1 connection will lose permissions.", "1 connection will expire sooner."} {
		if !strings.Contains(warned, words) {
			t.Errorf("the page did not warn that %q: %s", words, warned)
		}
	}
	narrowed := func(when string, token string) {
		t.Helper()
		answer := write(token)
		answer.WantsNested(t, http.StatusForbidden, "FORBIDDEN")
		p.In(ws.Workspace, token).Get(t, programmes).Wants(t, http.StatusOK)
		seen := p.DemoService().Introspect(t, token).Object(t)
		if permissions, _ := seen["permissions"].([]any); !slices.Equal(permissions, []any{harness.ReadProgrammes}) ||
			seen["active"] != true {
			t.Errorf("%s: introspection shows permissions %v", when, seen["permissions"])
		}
	}
	narrowed("the token of before", tokens.AccessToken)
	challenge := write(tokens.AccessToken).Header.Get("WWW-Authenticate")
	if strings.Contains(challenge, "insufficient_scope") {
		t.Errorf("the challenge suggests a new authorization: %s", challenge)
	}
	next := connector.Refresh(t, tokens.RefreshToken).Tokens(t)
	wantsSeconds(t, "authorization_expires_in", next.AuthorizationEnd, 7*24*3600)
	if next.Scope != harness.ReadProgrammes {
		t.Errorf("refreshed: scope %q", next.Scope)
	}
	narrowed("refreshed", next.AccessToken)
	if warned := p.LimitConnectors(t, ws, "30", everyPlatform, everyPermission); warned != "" {
		t.Errorf("raising warns: %s", warned)
	}
	narrowed("raised again", next.AccessToken)
	last := connector.Refresh(t, next.RefreshToken).Tokens(t)
	wantsSeconds(t, "raised again: authorization_expires_in", last.AuthorizationEnd, 7*24*3600)
	narrowed("raised and refreshed", last.AccessToken)
	p.Person(t, ws.Owner).Arrive(t, p.AppURL+"/settings/apps").WantsText(t, "reduced this access on")
	// An access token that has not expired stops working when its grant ends.
	p.Database.Exec(t, `update account.grants set created_at = created_at - interval '2 days' where id = $1`, grant)
	p.LimitConnectors(t, ws, "1", everyPlatform, everyPermission)
	p.In(ws.Workspace, last.AccessToken).Get(t, programmes).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	if seen := p.DemoService().Introspect(t, last.AccessToken).Object(t); seen["active"] != false {
		t.Errorf("introspection shows %v", seen)
	}
	why := connector.Refresh(t, last.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	if !strings.Contains(why, "connector policy") {
		t.Errorf("error_description %q", why)
	}
}

func TestConnectorPolicy_RaisingWidensNoConnection(t *testing.T) {
	p, ws := inWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes)
	p.LimitConnectors(t, ws, "3", everyPlatform, []string{harness.ReadProgrammes})
	page := p.Person(t, ws.Owner).Consent(t, connector.Begin().Query)
	page.WantsText(t, "3 days", "Not allowed by the workspace's connector policy", "Add and change programmes")
	tokens := connector.Connect(t, p.Person(t, ws.Owner))
	wantsSeconds(t, "authorization_expires_in", tokens.AuthorizationEnd, 3*24*3600)
	p.LimitConnectors(t, ws, "30", everyPlatform, everyPermission)
	next := connector.Refresh(t, tokens.RefreshToken).Tokens(t)
	wantsSeconds(t, "raised: authorization_expires_in", next.AuthorizationEnd, 3*24*3600)
	if next.Scope != harness.ReadProgrammes {
		t.Errorf("raised: scope %q", next.Scope)
	}
	again := connector.Connect(t, p.Person(t, ws.Owner))
	wantsSeconds(t, "consented again", again.AuthorizationEnd, 30*24*3600)
	if again.Scope != harness.ReadProgrammes+" "+harness.WriteProgrammes {
		t.Errorf("consented again: scope %q", again.Scope)
	}
}

func TestConnectorPolicy_DisallowedPlatformLosesAccess(t *testing.T) {
	p, ws := inWorkspace(t)
	connector, linked := ws.Connector(t, harness.ReadProgrammes), ws.Confidential(t, "", harness.ReadProgrammes)
	tokens, other := connector.Connect(t, p.Person(t, ws.Owner)), linked.Connect(t, p.Person(t, ws.Owner))
	warned := p.LimitConnectors(t, ws, "30", []string{"chatgpt", "other"}, everyPermission)
	if !strings.Contains(warned, "1 connection will end immediately.") {
		t.Errorf("the page has no warning: %s", warned)
	}
	p.In(ws.Workspace, tokens.AccessToken).Get(t, programmes).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	why := connector.Refresh(t, tokens.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	if !strings.Contains(why, "The workspace's connector policy ended this connection") {
		t.Errorf("error_description %q", why)
	}
	member := ws.Member(t, harness.ReadProgrammes)
	p.Person(t, member).Arrive(t, p.AuthorizeURL(connector.Begin().Query)).WantsPage(t, http.StatusForbidden).
		WantsText(t, "belongs to Claude", "People who can manage API access")
	p.Person(t, ws.Owner).Arrive(t, p.AppURL+"/settings/apps").
		WantsText(t, "because the connector policy no longer allows it")
	p.Person(t, ws.Owner).Arrive(t, p.AppURL+"/settings/audit?tenant="+ws.Workspace.ID).
		WantsText(t, "Changed the connector policy", "allowed platforms: ChatGPT, Other applications")
	p.In(ws.Workspace, other.AccessToken).Get(t, programmes).Wants(t, http.StatusOK)
	colleague := ws.Member(t, harness.ReadProgrammes)
	p.Person(t, colleague).Arrive(t, p.AppURL+"/settings/connectors?tenant="+ws.Workspace.ID).
		WantsPage(t, http.StatusForbidden)
}
