package authorize_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

const (
	state     = "a state of +/=&%20 and ~üñ"
	challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
)

// request returns the path of a request with changes, pairs of name and value: "" removes a parameter.
func request(fields map[string]string, changes ...string) string {
	query := url.Values{}
	for name, value := range fields {
		query.Set(name, value)
	}
	for i := 0; i+1 < len(changes); i += 2 {
		if query.Set(changes[i], changes[i+1]); changes[i+1] == "" {
			query.Del(changes[i])
		}
	}
	return "/oauth/authorize?" + query.Encode()
}

func confidential(c client.Client) map[string]string {
	return map[string]string{"client_id": c.ID.String(), "redirect_uri": c.Redirects[0], "state": state}
}

// connector returns a valid request of a connector.
func connector(c client.Client) map[string]string {
	fields := requestOf(c.ID.String(), c.Redirects[0])
	fields["resource"] = c.Resource
	return fields
}

// engine.TestIdentify_ErrorIsPage has what else is refused.
func TestPage_UnknownClientOrAddressIsNeverRedirected(t *testing.T) {
	site := shared(t)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	good := confidential(app)
	for name, path := range map[string]string{
		"no client":         request(good, "client_id", ""),
		"not an identifier": request(good, "client_id", "\x00"),
		"another port":      request(good, "redirect_uri", strings.Replace(fixture.Callback, "8090", "8091", 1)),
		"a parameter twice": request(good) + "&state=again",
	} {
		for who, browser := range map[string]*browsertest.Browser{
			"stranger": site.Browser(), "member": site.SignedIn(site.Member(perm.ProgrammesRead)),
		} {
			browser.Get(path).As(name, who).Wants(http.StatusBadRequest).LeadsTo("")
		}
	}
}

func TestPage_SignInLeadsBackToSameRequest(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	for name, path := range map[string]string{
		"good":     request(confidential(app)),
		"no state": request(confidential(app), "state", ""),
		"longest":  request(confidential(app), "state", strings.Repeat("ü", 1024)),
		"signs":    request(confidential(app), "state", `a b+c%&=;?/#"<é>'`, "ui_locales", "xx-unknown"),
	} {
		page := site.Browser().Get(path)
		page.As(name).Wants(http.StatusOK, "Sign in", app.Name).LeadsTo("")
		wrong := page.Send("/login", browsertest.Fields{"email": ada.Email, "password": "wrong"})
		wrong.Send("/login", browsertest.Fields{"email": ada.Email, "password": browsertest.Password}).As(name).
			Wants(http.StatusSeeOther).LeadsTo(path)
	}
}

// engine.TestParseAuthorization_RedirectsErrors has what else is a fault.
func TestPage_FaultsAreRedirectedWithStateAndIssuer(t *testing.T) {
	site := shared(t)
	browser := site.SignedIn(site.Member(perm.ProgrammesRead))
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	good := connector(site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead))
	for name, c := range map[string]struct {
		path, code string
		stateless  bool
	}{
		"no state":      {request(confidential(app), "state", ""), "invalid_request", true},
		"response type": {request(confidential(app), "response_type", "token"), "unsupported_response_type", false},
		"no resource":   {request(good, "resource", ""), "invalid_target", false},
		"nothing left":  {request(good, "scope", "engage:read:forms"), "invalid_scope", false},
		"its own iss":   {request(good, "iss", "https://a.example", "resource", ""), "invalid_target", false},
	} {
		page := browser.Get(c.path).As(name)
		query, wantState := callback(t, page), state
		if c.stateless {
			wantState = ""
		}
		if !strings.HasPrefix(page.Location(), fixture.Callback+"?") || query.Get("error") != c.code ||
			query.Get("state") != wantState || !slices.Equal(query["iss"], []string{browsertest.Issuer}) ||
			query.Get("error_description") == "" || query.Has("code") {
			t.Errorf("%s: %q", name, page.Location())
		}
	}
}

func TestConsentPage_NamesClientWorkspacePermissionsAndLifetime(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead, perm.AccountAPIAccess)
	browser := site.SignedIn(ada)
	assistant := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead, perm.ProgrammesWrite)
	browser.Get(request(connector(assistant))).Wants(http.StatusOK, "Claude", "Riverside Food Bank",
		"Riverside Food Bank Trust", ada.Email, "See programmes", "Read the names, summaries", "Not included",
		"Add and change programmes", "An administrator of Riverside Food Bank", "30 days", "127.0.0.1:8090",
		"You will be sent back to an app on this computer.")
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	site.Fixture.Exec(`update account.oauth_clients set name = 'Gift Aid export',
		redirect_uris = '{https://app.canal-lane.example/cb}' where id = $1`, app.ID)
	app.Redirects = []string{"https://app.canal-lane.example/cb"}
	site.SignedIn(site.Member(perm.ProgrammesRead, perm.ProgrammesWrite)).Get(request(confidential(app))).
		Wants(http.StatusOK, "Gift Aid export", "Riverside Food Bank", "See programmes", "90 days",
			"app.canal-lane.example").
		Lacks("Not included", "Add and change programmes")
}

func TestConsentPage_OmitsOrganisationNamedLikeWorkspace(t *testing.T) {
	site := shared(t)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	ada := site.Member(perm.ProgrammesRead, perm.AccountAPIAccess)
	browser := site.SignedIn(ada)
	consent, settings := request(confidential(app)), "/settings/developers"
	for _, path := range []string{consent, settings} {
		browser.Get(path).As(path).Says("workspace of Riverside Food Bank Trust")
	}
	site.Fixture.Exec(`update account.organisations set name = 'Riverside Food Bank'
		where id = (select organisation_id from account.tenants where id = $1)`, site.Fixture.WorkspaceID)
	for _, path := range []string{consent, settings} {
		browser.Get(path).As(path).Wants(http.StatusOK).Lacks("workspace of Riverside")
	}
	site.Fixture.Join(site.Fixture.Workspace("Elsewhere"), ada.ID, perm.AccountAPIAccess)
	browser.Get(settings).Says("Workspace: Riverside Food Bank Assistants", "Other workspace Elsewhere")
	site.Fixture.Exec(`update account.tenants set name = 'Elsewhere' where id = $1`, site.Fixture.WorkspaceID)
	browser.Get(settings).Says("Elsewhere (Elsewhere Trust)", "Elsewhere (Riverside Food Bank)")
}

func TestConsentPage_SecurityHeaders(t *testing.T) {
	site := shared(t)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	page := site.SignedIn(site.Member(perm.ProgrammesRead)).Get(request(confidential(app)))
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self' data:; " +
			"frame-ancestors 'none'; base-uri 'none'",
		"X-Frame-Options":        "DENY",
		"X-Content-Type-Options": "nosniff",
		"Referrer-Policy":        "same-origin",
		"Content-Type":           "text/html; charset=utf-8",
	} {
		site.Equal(name, page.Header.Get(name), want)
	}
	if !strings.Contains(strings.Join(page.Header.Values("Cache-Control"), ","), "no-store") {
		t.Errorf("Cache-Control: %v", page.Header.Values("Cache-Control"))
	}
	if len(page.Elements("script")) != 0 {
		t.Error("there is a script on the consent page")
	}
}

func TestPage_HeadAndQueryApproveNothing(t *testing.T) {
	site := shared(t)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	browser := site.SignedIn(site.Member(perm.ProgrammesRead))
	form := browser.Get(request(confidential(app))).Form("/oauth/authorize")
	form.Set("decision", "approve")
	for _, path := range []string{
		request(confidential(app)), request(confidential(app)) + "&" + form.Encode(),
		"/oauth/authorize?" + form.Encode(),
	} {
		head := browser.Do(http.MethodHead, path, "", nil)
		if head.Location() != "" || head.Body != "" {
			t.Errorf("HEAD: %d to %q", head.Status, head.Location())
		}
		browser.Get(path).As("as HEAD").Wants(head.Status)
	}
	site.Rows(0, "grants", "")
}

func TestConsentPage_RefusalNamesReason(t *testing.T) {
	site := shared(t)
	reader, outsider, writer := site.Member(perm.ProgrammesRead), site.Stranger(), site.Member(perm.EngageReadForms)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead, perm.ProgrammesWrite)
	assistant := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead, perm.ProgrammesWrite)
	check := func(name string, who browsertest.Person, path string, words ...string) {
		t.Helper()
		site.SignedIn(who).Get(path).As(name).Wants(http.StatusForbidden, append(words, who.Email)...).LeadsTo("").
			Keeps("/logout", "return", path) // as another user
	}
	check("not a member", outsider, request(confidential(app)), "not a member")
	check("not a member, connector", outsider, request(connector(assistant)), "not a member")
	check("a required permission missing", reader, request(confidential(app)), "Add and change programmes",
		"administrator")
	check("nothing left for a connector", writer, request(connector(assistant)), "See programmes",
		"Add and change programmes")
	check("nothing left of the scope", reader, request(connector(assistant), "scope", "programmes:write:programmes"),
		"Add and change programmes")
	site.Fixture.SetLLM(false)
	check("connectors switched off", reader, request(connector(assistant)), "switched off", "administrator")
	lone, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	site.SignedIn(reader).Get(request(confidential(lone))).Wants(http.StatusOK)
}

func TestConsentPage_IgnoresPermissionsOfOtherWorkspaces(t *testing.T) {
	site := shared(t)
	elsewhere := site.Fixture.Workspace("Hillside Youth Club")
	outsider, reader := site.Stranger(), site.Member(perm.ProgrammesRead)
	for _, person := range []browsertest.Person{outsider, reader} {
		site.Fixture.Join(elsewhere, person.ID, perm.ProgrammesRead, perm.ProgrammesWrite)
	}
	assistant := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead, perm.ProgrammesWrite)
	site.SignedIn(outsider).Get(request(connector(assistant))).Wants(http.StatusForbidden, "not a member")
	site.SignedIn(reader).Get(request(connector(assistant))).Wants(http.StatusOK, "Not included").
		Lacks("Hillside Youth Club")
}

var shared, own = browsertest.Shared, browsertest.Own

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
	page.Wants(http.StatusOK, "7 days", "because of the assistant rules of Riverside", "Add and change programmes",
		"in Settings, under Assistants")
	page.Lacks("Everything")
	g := granted(t, site, assistant, approve(page))
	life, want := time.Until(g.Ends), perm.NewSet(perm.ProgrammesRead)
	if !slices.Equal(g.Permissions, want) || life > 7*24*time.Hour || life < 7*24*time.Hour-time.Minute {
		t.Errorf("%v for %s", g.Permissions, life)
	}
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead, perm.ProgrammesWrite)
	ada.Get(request(confidential(app))).Wants(http.StatusOK, "90 days").Lacks("assistant rules")
}

func TestPolicy_RefusalNamesWhoCanChangeIt(t *testing.T) {
	site := shared(t)
	ada := site.SignedIn(site.Member(perm.ProgrammesRead))
	manager := site.SignedIn(site.Member(perm.ProgrammesRead, perm.AccountAPIAccess))
	assistant := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	others := []workspace.Platform{workspace.ChatGPT, workspace.Other}
	ofOthers := workspace.ConnectorPolicy{Platforms: others, Permissions: perm.ForConnectors(), Days: 30}
	ofForms := ofOthers
	ofForms.Platforms, ofForms.Permissions = workspace.Platforms(), perm.NewSet(perm.EngageReadForms)
	path := request(connector(assistant))
	for words, policy := range map[string]workspace.ConnectorPolicy{
		"belongs to Claude": ofOthers, "does not allow for assistants": ofForms,
	} {
		site.LimitConnectors(workspace.DefaultConnectorPolicy())
		open := ada.Get(path).As(words).Wants(http.StatusOK)
		site.LimitConnectors(policy)
		for when, page := range map[string]*browsertest.Page{"before": ada.Get(path), "after": approve(open)} {
			page.As(when, "the page").Wants(http.StatusForbidden, words, "People who can manage API access").LeadsTo("")
		}
		manager.Get(path).As(words).Wants(http.StatusForbidden, "Open the assistant rules")
	}
	site.Rows(0, "grants", "")
	site.Fixture.Exec(`update account.oauth_clients set connector_platform = 'chatgpt' where id = $1`, assistant.ID)
	site.LimitConnectors(ofOthers)
	ada.Get(path).Wants(http.StatusOK)
}

func TestPage_OtherMethodsAreRefused(t *testing.T) {
	site := shared(t)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	browser := site.SignedIn(site.Member(perm.ProgrammesRead))
	for _, method := range []string{http.MethodPut, http.MethodPatch, http.MethodDelete} {
		page := browser.Do(method, request(confidential(app)), "", nil).As(method).Wants(http.StatusMethodNotAllowed)
		site.Equal(method+": Allow", page.Header.Get("Allow"), "GET, HEAD, POST")
	}
}
