package authorize_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

const (
	choosing = "/oauth/authorize/workspace"
	web      = "https://claude.ai/api/mcp/auth_callback"
)

// requestOf returns a valid request of a client that has a metadata document.
func requestOf(address, redirectURI string) map[string]string {
	return map[string]string{
		"client_id":             address,
		"redirect_uri":          redirectURI,
		"state":                 state,
		"response_type":         "code",
		"resource":              browsertest.Resource,
		"code_challenge":        challenge,
		"code_challenge_method": "S256",
	}
}

func choose(page *browsertest.Page, workspace uuid.UUID) *browsertest.Page {
	return page.Send(choosing, browsertest.Fields{"workspace": workspace.String(), "decision": "choose"})
}

func TestChoice_NoWorkspaceIsPreselected(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := site.Member(perm.ProgrammesRead)
	address := site.Clients.Client("/oauth/client", nil, web)
	b := site.SignedIn(ada)
	workspace := site.Fixture.WorkspaceID.String()
	// The user has one workspace, or the link names it.
	for _, more := range []string{
		"",
		"&workspace=" + workspace,
		"&tenant=" + workspace,
		"&tenant_id=" + workspace,
		"&decision=choose&workspace=" + workspace,
	} {
		page := b.Get(request(requestOf(address, web), nil) + more)
		form := page.Form(choosing)
		if page.Status != http.StatusOK || form.Has("workspace") || page.HasText("Approve") {
			t.Errorf("%s: %d %v", more, page.Status, form)
		}
	}
	page := b.Get(request(requestOf(address, web), nil)).Send(choosing, browsertest.Fields{"decision": "choose"})
	if page.Status != http.StatusBadRequest || !page.HasText("Choose a workspace.") ||
		page.Form(choosing).Has("workspace") {
		t.Errorf("no choice: %d %s", page.Status, page.Text())
	}
	if page := choose(page, site.Fixture.WorkspaceID); page.Status != http.StatusOK || !page.HasText("Approve") {
		t.Errorf("after that: %d %s", page.Status, page.Text())
	}
	if page := b.Get(choosing); page.Status == http.StatusOK {
		t.Error("an address leads to the consent page")
	}
}

func TestChoice_RequiresLLMIntegration(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := site.Member(perm.ProgrammesRead)
	off := site.Fixture.Workspace("Harbour Advice")
	site.Fixture.Join(off, ada.ID, perm.ProgrammesRead)
	site.Fixture.Exec(`update account.tenant_features set enabled = false where tenant_id = $1`, off)
	address := site.Clients.Client("/oauth/client", nil, web)
	b := site.SignedIn(ada)
	page := b.Get(request(requestOf(address, web), nil))
	if !page.HasText("Harbour Advice Harbour Advice Trust Connectors are switched off here") ||
		strings.Contains(page.Body, off.String()) {
		t.Error(page.Text())
	}
	if answer := choose(page, off); answer.Status != http.StatusForbidden ||
		!answer.HasText("can switch on the LLM integration") {
		t.Errorf("a workspace without LLM integration chosen: %d %s", answer.Status, answer.Text())
	}
	site.Fixture.SetLLM(false)
	if answer := choose(page, site.Fixture.WorkspaceID); answer.Status != http.StatusForbidden {
		t.Errorf("LLM integration switched off after the page: %d", answer.Status)
	}
	page = b.Get(request(requestOf(address, web), nil))
	if page.Status != http.StatusForbidden ||
		!page.HasText("An administrator of a workspace can switch on its LLM integration") {
		t.Errorf("no workspace with LLM integration: %d %s", page.Status, page.Text())
	}
	page = site.SignedIn(site.Stranger()).Get(request(requestOf(address, web), nil))
	if page.Status != http.StatusForbidden || !page.HasText("You are not a member of any workspace") {
		t.Errorf("member of no workspace: %d %s", page.Status, page.Text())
	}
}

func TestChoice_OnlyFromItsUserAndSession(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada, grace := site.Member(perm.ProgrammesRead), site.Member(perm.ProgrammesRead)
	elsewhere := site.Fixture.Workspace("Harbour Advice")
	poor := site.Fixture.Workspace("Hill Chapel")
	site.Fixture.Join(poor, ada.ID, perm.AccountAPIAccess)
	address := site.Clients.Client("/oauth/client", nil, web)
	b := site.SignedIn(ada)
	page := b.Get(request(requestOf(address, web), nil))
	if answer := choose(page, elsewhere); answer.Status != http.StatusForbidden ||
		!answer.HasText("You are not a member of this workspace") {
		t.Errorf("a workspace of other users: %d %s", answer.Status, answer.Text())
	}
	if answer := choose(page, poor); answer.Status != http.StatusForbidden ||
		!answer.HasText("You cannot give Claude the access that it needs") {
		t.Errorf("a workspace without the permissions: %d %s", answer.Status, answer.Text())
	}
	values := page.Form(choosing)
	values.Set("workspace", site.Fixture.WorkspaceID.String())
	values.Set("decision", "choose")
	if answer := site.SignedIn(grace).Post(choosing, values); answer.Status != http.StatusForbidden ||
		!answer.HasText("another session") {
		t.Errorf("another user: %d", answer.Status)
	}
	if answer := site.SignedIn(ada).Post(choosing, values); answer.Status != http.StatusForbidden {
		t.Errorf("another session: %d", answer.Status)
	}
	if answer := site.Browser().Post(choosing, values); answer.Status != http.StatusForbidden {
		t.Errorf("signed out: %d", answer.Status)
	}
	b.Headers.Set("Origin", "https://evil.example")
	if answer := b.Post(choosing, values); answer.Status != http.StatusForbidden {
		t.Errorf("another origin: %d", answer.Status)
	}
	b.Headers.Del("Origin")
	for name, bad := range map[string]url.Values{
		"no decision": {"ticket": values["ticket"], "workspace": values["workspace"]},
		"approve":     {"ticket": values["ticket"], "workspace": values["workspace"], "decision": {"approve"}},
		"two": {
			"ticket":    values["ticket"],
			"workspace": {values.Get("workspace"), elsewhere.String()},
			"decision":  {"choose"},
		},
	} {
		if answer := b.Post(choosing, bad); answer.Status != http.StatusBadRequest {
			t.Errorf("%s: %d", name, answer.Status)
		}
	}
	// The choice ticket is refused as a consent ticket, and the consent ticket as a choice ticket.
	if answer := b.Post("/oauth/authorize", url.Values{
		"ticket":   values["ticket"],
		"decision": {"approve"},
	}); answer.Status != http.StatusForbidden {
		t.Errorf("choice ticket sent as consent: %d", answer.Status)
	}
	consented := b.Post(choosing, values).Form("/oauth/authorize")
	if answer := b.Post(choosing, url.Values{
		"ticket":    consented["ticket"],
		"workspace": values["workspace"],
		"decision":  {"choose"},
	}); answer.Status != http.StatusForbidden {
		t.Errorf("consent ticket sent as choice: %d", answer.Status)
	}
	site.Wait(61 * 60e9)
	if answer := b.Post(choosing, values); answer.Status != http.StatusBadRequest ||
		!answer.HasText("has expired") {
		t.Errorf("after an hour: %d", answer.Status)
	}
	if n := site.Count(`select count(*) from account.grants`); n != 0 {
		t.Errorf("%d grants", n)
	}
}

func TestChoice_TwoWorkspacesGiveTwoGrants(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := site.Member(perm.ProgrammesRead)
	second := site.Fixture.Workspace("Harbour Advice")
	site.Fixture.Join(second, ada.ID, perm.ProgrammesRead)
	address := site.Clients.Client("/oauth/client", nil, web)
	browser := site.SignedIn(ada)
	for _, workspaceID := range []uuid.UUID{site.Fixture.WorkspaceID, second} {
		page := browser.Get(request(requestOf(address, web), map[string]string{"state": workspaceID.String()}))
		code := callback(t, approve(choose(page, workspaceID))).Get("code")
		if g := redeemedBy(t, site, address, code, web, browsertest.Resource); g.WorkspaceID != workspaceID {
			t.Errorf("granted in %s, want %s", g.WorkspaceID, workspaceID)
		}
	}
}

func TestChoice_DenialRedirectsToClient(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	address := site.Clients.Client("/oauth/client", nil, web)
	page := site.SignedIn(site.Member(perm.ProgrammesRead)).Get(request(requestOf(address, web), nil))
	answer := page.Send(choosing, browsertest.Fields{"decision": "deny"})
	query := callback(t, answer)
	if !strings.HasPrefix(answer.Location(), web+"?") || query.Get("error") != "access_denied" ||
		query.Get("state") != state ||
		query.Get("iss") != browsertest.Issuer {
		t.Error(answer.Location())
	}
	if strings.Contains(page.Header.Get("Content-Security-Policy"), "form-action") {
		t.Error("a browser that applies form-action to redirects would not follow")
	}
}
