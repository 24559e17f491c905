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
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead)
	address := site.Clients.Client("/oauth/client", nil, web)
	b := site.SignedIn(ada)
	workspace := site.Fixture.WorkspaceID.String()
	// The user has one workspace, or the link names it.
	for _, more := range []string{
		"", "&workspace=" + workspace, "&tenant=" + workspace, "&tenant_id=" + workspace,
		"&decision=choose&workspace=" + workspace,
	} {
		b.Get(request(requestOf(address, web))+more).Wants(http.StatusOK).Keeps(choosing, "workspace", "").
			Lacks("Approve")
	}
	page := b.Get(request(requestOf(address, web))).Send(choosing, browsertest.Fields{"decision": "choose"})
	page.Wants(http.StatusBadRequest, "Choose a workspace.").Keeps(choosing, "workspace", "")
	choose(page, site.Fixture.WorkspaceID).Wants(http.StatusOK, "Approve")
	if page := b.Get(choosing); page.Status == http.StatusOK {
		t.Error("an address leads to the consent page")
	}
}

func TestChoice_RequiresLLMIntegration(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead)
	off := site.Fixture.Workspace("Harbour Advice")
	site.Fixture.Join(off, ada.ID, perm.ProgrammesRead)
	site.Fixture.Exec(`update account.tenant_features set enabled = false where tenant_id = $1`, off)
	address := site.Clients.Client("/oauth/client", nil, web)
	b := site.SignedIn(ada)
	page := b.Get(request(requestOf(address, web)))
	page.Says("Harbour Advice Harbour Advice Trust Connectors are switched off here").Omits(off.String())
	choose(page, off).Wants(http.StatusForbidden, "can switch on the LLM integration")
	site.Fixture.SetLLM(false)
	choose(page, site.Fixture.WorkspaceID).Wants(http.StatusForbidden)
	page = b.Get(request(requestOf(address, web)))
	page.Wants(http.StatusForbidden, "An administrator of a workspace can switch on its LLM integration")
	page = site.SignedIn(site.Stranger()).Get(request(requestOf(address, web)))
	page.Wants(http.StatusForbidden, "You are not a member of any workspace")
}

func TestChoice_OnlyFromItsUserAndSession(t *testing.T) {
	site := own(t)
	ada, grace := site.Member(perm.ProgrammesRead), site.Member(perm.ProgrammesRead)
	elsewhere := site.Fixture.Workspace("Harbour Advice")
	poor := site.Fixture.Workspace("Hill Chapel")
	site.Fixture.Join(poor, ada.ID, perm.AccountAPIAccess)
	address := site.Clients.Client("/oauth/client", nil, web)
	b := site.SignedIn(ada)
	page := b.Get(request(requestOf(address, web)))
	choose(page, elsewhere).Wants(http.StatusForbidden, "You are not a member of this workspace")
	choose(page, poor).Wants(http.StatusForbidden, "You cannot give Claude the access that it needs")
	values := page.Form(choosing)
	here := site.Fixture.WorkspaceID.String()
	values.Set("workspace", here)
	values.Set("decision", "choose")
	site.SignedIn(grace).Post(choosing, values).Wants(http.StatusForbidden, "another session")
	site.SignedIn(ada).Post(choosing, values).Wants(http.StatusForbidden)
	site.Browser().Post(choosing, values).Wants(http.StatusForbidden)
	b.Headers.Set("Origin", "https://evil.example")
	b.Post(choosing, values).Wants(http.StatusForbidden)
	b.Headers.Del("Origin")
	for name, bad := range map[string]url.Values{
		"no decision": {"ticket": values["ticket"], "workspace": values["workspace"]},
		"approve":     {"ticket": values["ticket"], "workspace": values["workspace"], "decision": {"approve"}},
		"two":         {"ticket": values["ticket"], "workspace": {here, elsewhere.String()}, "decision": {"choose"}},
	} {
		b.Post(choosing, bad).As(name).Wants(http.StatusBadRequest)
	}
	ticket := values["ticket"]
	// The choice ticket is refused as a consent ticket, and the consent ticket as a choice ticket.
	b.Post("/oauth/authorize", url.Values{"ticket": values["ticket"], "decision": {"approve"}}).
		Wants(http.StatusForbidden)
	consented := b.Post(choosing, values).Form("/oauth/authorize")
	values["ticket"] = consented["ticket"]
	b.Post(choosing, values).Wants(http.StatusForbidden)
	values["ticket"] = ticket
	site.Wait(61 * 60e9)
	b.Post(choosing, values).Wants(http.StatusBadRequest, "has expired")
	site.Rows(0, "grants", "")
}

func TestChoice_TwoWorkspacesGiveTwoGrants(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead)
	second := site.Fixture.Workspace("Harbour Advice")
	site.Fixture.Join(second, ada.ID, perm.ProgrammesRead)
	address := site.Clients.Client("/oauth/client", nil, web)
	browser := site.SignedIn(ada)
	for _, workspaceID := range []uuid.UUID{site.Fixture.WorkspaceID, second} {
		page := browser.Get(request(requestOf(address, web), "state", workspaceID.String()))
		code := callback(t, approve(choose(page, workspaceID))).Get("code")
		if g := redeemedBy(t, site, address, code, web, browsertest.Resource); g.WorkspaceID != workspaceID {
			t.Errorf("granted in %s, want %s", g.WorkspaceID, workspaceID)
		}
	}
}

func TestChoice_DenialRedirectsToClient(t *testing.T) {
	site := shared(t)
	address := site.Clients.Client("/oauth/client", nil, web)
	page := site.SignedIn(site.Member(perm.ProgrammesRead)).Get(request(requestOf(address, web)))
	answer := page.Send(choosing, browsertest.Fields{"decision": "deny"})
	query := callback(t, answer)
	if !strings.HasPrefix(answer.Location(), web+"?") || query.Get("error") != "access_denied" ||
		query.Get("state") != state || query.Get("iss") != browsertest.Issuer {
		t.Error(answer.Location())
	}
	if strings.Contains(page.Header.Get("Content-Security-Policy"), "form-action") {
		t.Error("a browser that applies form-action to redirects would not follow")
	}
}
