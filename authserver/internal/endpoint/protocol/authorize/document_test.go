package authorize_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
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

func redeemedBy(t *testing.T, site *browsertest.Server, address, code, redirectURI, resource string) grant.Grant {
	t.Helper()
	terms := grant.CodeTerms{
		ClientID:    clientOf(t, address, redirectURI).ID,
		RedirectURI: redirectURI,
		Resource:    resource,
		Challenge:   challenge,
	}
	issued, err := site.Redeem(credential.Secret(code), terms)
	if err != nil {
		t.Fatal(err)
	}
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
	for _, uri := range []string{
		"http://localhost:54321/other", "http://localhost:54321/callback?x=1", "http://[::1]:1/callback",
		"https://localhost:1/callback", "http://localhost:1@evil.example/callback",
	} {
		b.Get(request(requestOf(address, uri))).Wants(http.StatusBadRequest).LeadsTo("")
	}
	registered := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	moved := request(connector(registered), "redirect_uri", strings.Replace(fixture.Callback, "8090", "8091", 1))
	b.Get(moved).Wants(http.StatusBadRequest)
}

func TestDocumentClient_MayRequestEitherResource(t *testing.T) {
	site := shared(t)
	address := site.Clients.Client("/oauth/client", nil, web)
	b := site.SignedIn(site.Member(perm.ProgrammesRead, perm.AccountAPIAccess))
	for _, resource := range []string{browsertest.Resource, browsertest.Issuer + "/mcp"} {
		path := request(requestOf(address, web), "resource", resource, "state", resource,
			"scope", " offline_access account:api:access programmes:read:programmes")
		page := choose(b.Get(path), site.Fixture.WorkspaceID)
		g := redeemedBy(t, site, address, callback(t, approve(page)).Get("code"), web, resource)
		if g.Resource != resource || g.Permissions.Scope() != "programmes:read:programmes" {
			t.Errorf("%s: %+v", resource, g)
		}
	}
	for _, resource := range []string{"", browsertest.Issuer, browsertest.Issuer + "/mcp/", "https://evil.example/v1"} {
		page := b.Get(request(requestOf(address, web), "resource", resource))
		if code := callback(t, page).Get("error"); code != "invalid_target" &&
			(resource != "" || code != "invalid_request" && code != "invalid_target") {
			t.Errorf("%q: %s", resource, code)
		}
	}
}

func TestDocumentClient_BadDocumentIsNeverRedirected(t *testing.T) {
	site := shared(t)
	good := site.Clients.Client("/good", nil, web)
	for name, c := range map[string]struct {
		address, words string
		status         int
	}{
		"secret": {
			site.Clients.Client("/secret", map[string]any{"client_secret": "x"}, web), "contains a client_secret", 400,
		},
		"another address": {
			site.Clients.Client("/other", map[string]any{"client_id": good}, web), "does not exactly match", 400,
		},
		"not there":    {good + "/nothing", "404", 400},
		"not served":   {"https://claude.example/oauth/client", "not on the list of allowed domains", 400},
		"with a query": {good + "?x=1", "not on the list", 400},
		"http":         {"http" + good[5:], "not registered here", 400},
	} {
		for who, b := range map[string]*browsertest.Browser{
			"stranger": site.Browser(),
			"member":   site.SignedIn(site.Member(perm.ProgrammesRead)),
		} {
			b.Get(request(requestOf(c.address, web))).As(name, who).Wants(c.status, c.words).LeadsTo("")
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

func TestDocumentClient_StoredIDIsNotAClientID(t *testing.T) {
	site := shared(t)
	address := site.Clients.Client("/oauth/client", nil, web)
	b := site.SignedIn(site.Member(perm.ProgrammesRead))
	b.Get(request(requestOf(address, web)))
	id, err := accesstoken.ClientID(address)
	if err != nil {
		t.Fatal(err)
	}
	site.CountIs(1, `select count(*) from account.oauth_clients where id = $1`, id)
	b.Get(request(requestOf(id.String(), web))).Wants(http.StatusBadRequest)
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
