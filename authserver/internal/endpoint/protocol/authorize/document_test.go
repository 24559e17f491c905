package authorize_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

func TestDocumentClient_GetsChosenWorkspace(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead)
	second := site.Fixture.Workspace("Harbour Advice")
	site.Fixture.Join(second, ada.ID, perm.ProgrammesRead, perm.ProgrammesWrite)
	address := site.Clients.Client("/oauth/client", nil, web)
	page := site.SignedIn(ada).Get(request(requestOf(address, web)))
	page.Wants(http.StatusOK, "Riverside Food Bank", "Harbour Advice Trust", "From "+site.Clients.Name())
	consentPage := choose(page, second)
	consentPage.Says("Claude asks for access to Harbour Advice", "From "+site.Clients.Name(), "claude.ai",
		"Add and change programmes", "Choose another workspace")
	query := callback(t, approve(consentPage))
	if query.Get("state") != state || query.Get("iss") != browsertest.Issuer || query.Get("code") == "" {
		t.Fatal(query)
	}
	g := redeemedBy(t, site, address, query.Get("code"), web, browsertest.Resource)
	if g.WorkspaceID != second || g.UserID != ada.ID || g.Kind != client.Connector ||
		g.Permissions.Scope() != "programmes:read:programmes programmes:write:programmes" {
		t.Errorf("%+v", g)
	}
}

// memberOfTwo returns a user who reads programmes in the fixture's workspace and in a second one, Harbour Advice.
func memberOfTwo(site *browsertest.Server) (browsertest.Person, uuid.UUID) {
	ada, second := site.Member(perm.ProgrammesRead), site.Fixture.Workspace("Harbour Advice")
	site.Fixture.Join(second, ada.ID, perm.ProgrammesRead)
	return ada, second
}

func redeemedBy(t *testing.T, site *browsertest.Server, address, code, redirectURI, resource string) grant.Grant {
	t.Helper()
	terms := grant.CodeTerms{
		ClientID:    clientOf(t, address, redirectURI).ID,
		RedirectURI: redirectURI,
		Resource:    resource,
		Challenge:   challenge,
	}
	issued, err := site.Redeem(credential.Secret(code), terms)
	site.Must(err)
	return issued.Grant
}

func TestDocumentClient_LoopbackPortIsFree(t *testing.T) {
	site := shared(t)
	address := site.Clients.Client("/oauth/native", map[string]any{"client_name": "Claude Code"},
		"http://localhost/callback", "http://127.0.0.1/callback")
	b := site.SignedIn(site.Member(perm.ProgrammesRead))
	for _, uri := range []string{
		"http://localhost:54321/callback", "http://127.0.0.1:1/callback", "http://localhost/callback",
	} {
		page := choose(b.Get(request(requestOf(address, uri))), site.Fixture.WorkspaceID)
		page.Wants(http.StatusOK, "to an app on this computer")
		answer := approve(page)
		if code := callback(t, answer).Get("code"); !strings.HasPrefix(answer.Location(), uri+"?") ||
			redeemedBy(t, site, address, code, uri, browsertest.Resource).ID == uuid.Nil {
			t.Errorf("%s: sent to %s", uri, answer.Location())
		}
	}
	b.Get(request(requestOf(address, "http://localhost:54321/other"))).Wants(http.StatusBadRequest).LeadsTo("")
	registered := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	moved := request(connector(registered), "redirect_uri", strings.Replace(fixture.Callback, "8090", "8091", 1))
	b.Get(moved).Wants(http.StatusBadRequest)
}

func TestDocumentClient_BadDocumentIsNeverRedirected(t *testing.T) {
	site := shared(t)
	good := site.Clients.Client("/good", nil, web)
	stranger, member := site.Browser(), site.SignedIn(site.Member(perm.ProgrammesRead))
	secret := site.Clients.Client("/secret", map[string]any{"client_secret": "x"}, web)
	other := site.Clients.Client("/other", map[string]any{"client_id": good}, web)
	for name, c := range map[string]struct{ address, words string }{
		"secret":          {secret, "contains a client_secret"},
		"another address": {other, "does not exactly match"},
		"not there":       {good + "/nothing", "404"},
		"not served":      {"https://claude.example/oauth/client", "not on the list of allowed domains"},
		"with a query":    {good + "?x=1", "not on the list"},
		"http":            {"http" + good[5:], "not registered here"},
	} {
		for _, b := range []*browsertest.Browser{stranger, member} {
			b.Get(request(requestOf(c.address, web))).As(name).Wants(http.StatusBadRequest, c.words).LeadsTo("")
		}
	}
	site.Clients.Fail(http.StatusBadGateway)
	page := site.Browser().Get(request(requestOf(good, web)))
	page.Wants(http.StatusServiceUnavailable, "does not respond").HasHeader("Retry-After").LeadsTo("")
	said := false
	for line := range strings.Lines(site.Log.String()) { // of all tests
		said = said || (strings.Contains(line, site.Clients.URL) && strings.Contains(line, "status 502"))
	}
	if !said {
		t.Error("the log does not say why")
	}
}

func TestDocumentClient_NameIsShownWithItsDomain(t *testing.T) {
	site := shared(t)
	b := site.SignedIn(site.Member(perm.ProgrammesRead))
	for path, c := range map[string]struct{ name, says string }{
		"/plain":  {"Claude", "Choose a workspace for Claude"},
		"/markup": {"<b>Claude</b>", "Choose a workspace for <b>Claude</b>"},
		"/turned": {"safe\u202eelbadnu", "Choose a workspace for " + site.Clients.Name()},
		"/none":   {"", "Choose a workspace for " + site.Clients.Name()},
	} {
		address := site.Clients.Client(path, map[string]any{"client_name": c.name}, web)
		b.Get(request(requestOf(address, web))).As(path).Says(c.says, "From "+site.Clients.Name())
	}
	address := site.Clients.Client("/plain", nil, web)
	site.Browser().Get(request(requestOf(address, web))).
		Says("to continue to Claude (" + site.Clients.Name() + ")")
}

func TestDocumentClient_DeletedWhilePageIsOpenIsRefused(t *testing.T) {
	site := shared(t)
	address := site.Clients.Client("/oauth/client", nil, web)
	b := site.SignedIn(site.Member(perm.ProgrammesRead))
	page := b.Get(request(requestOf(address, web)))
	last := choose(page, site.Fixture.WorkspaceID)
	site.Fixture.Exec(`update account.oauth_clients set deleted_at = now() where metadata_url = $1`, address)
	for _, answer := range []*browsertest.Page{
		choose(page, site.Fixture.WorkspaceID), approve(last), b.Get(request(requestOf(address, web))),
	} {
		answer.Wants(http.StatusBadRequest).LeadsTo("")
	}
}

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
	page.Says("Harbour Advice Harbour Advice Trust AI assistants are switched off here").Omits(off.String())
	choose(page, off).Wants(http.StatusForbidden, "AI assistants are switched off in Harbour Advice")
	site.Fixture.SetLLM(false)
	choose(page, site.Fixture.WorkspaceID).Wants(http.StatusForbidden)
	page = b.Get(request(requestOf(address, web)))
	page.Wants(http.StatusForbidden, "AI assistants are switched off in your workspaces")
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
