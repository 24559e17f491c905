package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Contract, section 4: the content of the consent page, and the effect of its two buttons.

func TestConsent_PageShowsRequest(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner).SignedIn(t)
	connector := ws.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes)
	page := owner.Consent(t, connector.Begin().Query)
	page.WantsPage(t, http.StatusOK)
	// The page shows the registry's titles of the permissions, not their identifiers.
	page.WantsText(t, "Assistant of the office", ws.Workspace.Name, "See programmes", "Add and change programmes",
		"30 days", "app.canal-lane.example")
	app := ws.Confidential(t, "", harness.ReadProgrammes)
	page = owner.Consent(t, app.Request())
	page.WantsText(t, "Gift Aid export", ws.Workspace.Name, "See programmes", "90 days", "app.canal-lane.example")
	if strings.Contains(page.Text(), "Add and change programmes") {
		t.Error("the page names a permission that was not requested")
	}
}

func TestConsent_PageWorksWithoutScript(t *testing.T) {
	t.Parallel()
	p := enter(t)
	page := p.Person(t, p.Demo.Users.Owner).Consent(t, p.DemoConnector().Begin().Query)
	if scripts := page.Find("script, [onclick], [onsubmit]").Length(); scripts != 0 {
		t.Errorf("%d scripts on the consent page", scripts)
	}
	for _, button := range []string{"approve", "deny"} {
		form := page.Find(`button[type=submit][name=decision][value=` + button + `]`).Closest("form")
		if !strings.EqualFold(form.AttrOr("method", ""), "post") {
			t.Errorf("%s is not a button of a POST form", button)
		}
	}
	policy := page.Header.Get("Content-Security-Policy")
	if !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "form-action") {
		t.Errorf("the policy is %q", policy)
	}
	if page.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("Cache-Control is %q", page.Header.Get("Cache-Control"))
	}
}

func TestConsent_ApprovalReturnsCodeStateIssuer(t *testing.T) {
	t.Parallel()
	p := enter(t)
	owner := p.Person(t, p.Demo.Users.Owner)
	for name, request := range map[string]map[string][]string{
		"confidential": p.DemoConfidential().Request(), "connector": p.DemoConnector().Begin().Query,
	} {
		t.Run(name, func(t *testing.T) {
			page := owner.Consent(t, request).Press(t, "approve")
			page.Wants(t, http.StatusSeeOther)
			callback := page.Callback(t)
			if got := strings.Join(callback.Names(), " "); got != "code iss state" ||
				callback.URI != request["redirect_uri"][0] {
				t.Errorf("redirected to %s with %s", callback.URI, got)
			}
			if callback.Values.Get("state") != request["state"][0] || callback.Values.Get("iss") != p.BaseURL {
				t.Error("wrong state or iss")
			}
			if !strings.HasPrefix(callback.Code(), "alm_ac_") {
				t.Error("the code does not have the format of section 2 of the contract")
			}
		})
	}
}

func TestConsent_DenialReturnsAccessDenied(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes)
	attempt := connector.Begin()
	page := p.Person(t, ws.Owner).Consent(t, attempt.Query).Press(t, "deny")
	page.Wants(t, http.StatusSeeOther)
	wantsError(t, page.Callback(t), connector.RedirectURI, attempt.Query.Get("state"), p.BaseURL, "access_denied")
	if count := grantsOf(t, p, connector.ClientID); count != 0 {
		t.Errorf("%d grants after a denial", count)
	}
}

// grantsOf returns the number of grants of an application.
func grantsOf(t *testing.T, p *harness.Product, client string) int {
	t.Helper()
	return p.Database.Count(t, `select count(*) from account.grants where client_id = $1`, client)
}

func TestConsent_RejectsNonMember(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	stranger := p.Person(t, p.Database.User(t)).SignedIn(t)
	stranger.Open(t, p.AuthorizeURL(ws.Confidential(t, "", harness.ReadProgrammes).Request())).
		WantsPage(t, http.StatusForbidden)
	stranger.Open(t, p.AuthorizeURL(ws.Connector(t, harness.ReadProgrammes).Begin().Query)).
		WantsPage(t, http.StatusForbidden)
	outsider := p.Person(t, p.Demo.Users.Outsider).SignedIn(t)
	page := outsider.Open(t, p.AuthorizeURL(p.DemoConnector().Begin().Query)).WantsPage(t, http.StatusForbidden)
	page.WantsText(t, "member")
}

// "Connector consent requires the workspace's LLM integration feature to be enabled" (spec 4.4); consent for a
// confidential application does not.
func TestConsent_ConnectorNeedsLLMIntegration(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	app, connector := ws.Confidential(t, "", harness.ReadProgrammes), ws.Connector(t, harness.ReadProgrammes)
	owner := p.Person(t, ws.Owner).SignedIn(t)
	p.Database.SetLLM(t, ws.Workspace, false)
	owner.Open(t, p.AuthorizeURL(connector.Begin().Query)).WantsPage(t, http.StatusForbidden)
	app.Connect(t, owner)
	p.Database.Exec(t, `delete from account.tenant_features where tenant_id = $1`, ws.Workspace.ID)
	owner.Open(t, p.AuthorizeURL(connector.Begin().Query)).WantsPage(t, http.StatusForbidden)
	p.Database.Exec(t,
		`insert into account.tenant_features (tenant_id, feature, enabled) values ($1, 'llm_integration', true)`,
		ws.Workspace.ID)
	connector.Connect(t, owner)
}

func TestConsent_ConfidentialNeedsAllPermissions(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	app := ws.Confidential(t, "", harness.ReadProgrammes, harness.WriteProgrammes)
	reader := p.Person(t, ws.Member(t, harness.ReadProgrammes)).SignedIn(t)
	reader.Open(t, p.AuthorizeURL(app.Request())).WantsPage(t, http.StatusForbidden)
	p.Database.Permit(t, ws.Workspace, reader.User, harness.ReadProgrammes, harness.WriteProgrammes)
	reader.Consent(t, app.Request())
}

// "For a connector, what the user does not hold is left out and named on the page, with who could grant it; if nothing
// is left: 403."
func TestConsent_ConnectorOmitsMissingPermissions(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes)
	reader := p.Person(t, ws.Member(t, harness.ReadProgrammes))
	attempt := connector.Begin()
	page := reader.Consent(t, attempt.Query)
	page.WantsText(t, "See programmes", "Add and change programmes", "administrator")
	tokens := attempt.Post(t, attempt.CodeForm(page.Approve(t))).Tokens(t)
	if tokens.Scope != harness.ReadProgrammes {
		t.Errorf("granted %q", tokens.Scope)
	}
	formsOnly := p.Person(t, ws.Member(t, harness.ReadForms)).SignedIn(t)
	formsOnly.Open(t, p.AuthorizeURL(connector.Begin().Query)).WantsPage(t, http.StatusForbidden)
	reader.Open(t, p.AuthorizeURL(change(connector.Begin().Query, "scope", harness.WriteProgrammes))).
		WantsPage(t, http.StatusForbidden)
}

// A write permission is never granted without its read permission: a request for the write adds the read, and the
// write is left out if the user lacks the read.
func TestConsent_WriteNeedsRead(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	connector := ws.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes)
	attempt := connector.Begin()
	attempt.Query.Set("scope", harness.WriteProgrammes)
	page := p.Person(t, ws.Owner).Consent(t, attempt.Query)
	page.WantsText(t, "See programmes", "Add and change programmes")
	if tokens := attempt.Post(t, attempt.CodeForm(page.Approve(t))).Tokens(t); tokens.Scope != connector.Scope {
		t.Errorf("granted %q", tokens.Scope)
	}
	writer := p.Person(t, ws.Member(t, harness.WriteProgrammes)).SignedIn(t)
	writer.Open(t, p.AuthorizeURL(connector.Begin().Query)).WantsPage(t, http.StatusForbidden).
		WantsText(t, "See programmes")

		// A connector that was registered for the write only gets the write only.
	drop := ws.Connector(t, harness.WriteProgrammes)
	if tokens := drop.Connect(t, p.Person(t, ws.Owner)); tokens.Scope != harness.WriteProgrammes {
		t.Errorf("granted %q", tokens.Scope)
	}
}

// The owner is a member of Empty with every permission, but the applications of the demo belong to Main.
func TestConsent_ApplicationBelongsToOneWorkspace(t *testing.T) {
	t.Parallel()
	p := enter(t)
	tokens := p.DemoConfidential().Connect(t, p.Person(t, p.Demo.Users.Owner))
	if tokens.WorkspaceID != p.Demo.Workspaces.Main.ID {
		t.Error("the token is not for the workspace of the application")
	}
	p.In(p.Demo.Workspaces.Main, tokens.AccessToken).Get(t, programmes).Wants(t, http.StatusOK)
	p.In(p.Demo.Workspaces.Empty, tokens.AccessToken).Get(t, programmes).
		WantsNested(t, http.StatusForbidden, "FORBIDDEN")
}

// wantsError checks for an error of RFC 6749, section 4.1.2.1, with state and iss (RFC 9207) and no other parameter.
// Several codes mean that the contract allows any of them. An empty state means that the callback must not have one.
func wantsError(t testing.TB, c harness.Callback, uri, state, issuer string, codes ...string) {
	t.Helper()
	want := []string{"error", "error_description", "iss", "state"}
	if state == "" {
		want = want[:3]
	}
	if c.URI != uri || !slices.Equal(c.Names(), want) {
		t.Errorf("redirected to %s with %v, want %s with %v", c.URI, c.Names(), uri, want)
	}
	if !slices.Contains(codes, c.Values.Get("error")) || c.Values.Get("error_description") == "" {
		t.Errorf("error %q (%s), want %v and a description", c.Values.Get("error"),
			harness.Redact(c.Values.Get("error_description")), codes)
	}
	if c.Values.Get("state") != state || c.Values.Get("iss") != issuer {
		t.Errorf("wrong state or iss in the error: iss %q, state of %d bytes, want %d", c.Values.Get("iss"),
			len(c.Values.Get("state")), len(state))
	}
}
