package e2e

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/PuerkitoBio/goquery"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Spec 2.1, 3 and 5.2, contract section 7: personal access tokens, created and revoked in Settings → Developers.

var patPattern = regexp.MustCompile(`alm_pat_[0-9A-Za-z]+`)

const tokenForm = `form:has(input[name=days]) `

func developersURL(p *harness.Product, o harness.TestWorkspace) string {
	return p.AppURL + "/settings/developers?tenant=" + o.Workspace.ID
}

// newTokenPage follows the link "New token" of the list of tokens. Another page is returned as it is.
func newTokenPage(t *testing.T, who *harness.Person, page harness.Page) harness.Page {
	t.Helper()
	link, there := page.Find(`a:contains("New token")`).Attr("href")
	if !there {
		return page
	}
	target, err := page.URL.Parse(link)
	must(t, err)
	return who.Arrive(t, target.String())
}

// makeToken fills in and submits the form for a new token.
func makeToken(
	t *testing.T,
	who *harness.Person,
	page harness.Page,
	name, days string,
	permissions ...string,
) harness.Page {
	t.Helper()
	form := newTokenPage(t, who, page).FormWith(t, tokenForm+"input[name=name]")
	form.Fields.Set("name", name)
	form.Fields.Set("days", days)
	form.Fields["permissions"] = permissions
	return who.Submit(t, form)
}

func values(selection *goquery.Selection) []string {
	return sorted(selection.Map(func(_ int, s *goquery.Selection) string { return s.AttrOr("value", "") }))
}

func TestPAT_ShownOnceUsedAndRevoked(t *testing.T) {
	p, ws := inWorkspace(t)
	owner := p.Person(t, ws.Owner)
	page := owner.Arrive(t, developersURL(p, ws)).WantsPage(t, http.StatusOK)
	made := makeToken(t, owner, page, "Payroll bridge", "30", harness.ReadProgrammes)
	shown := patPattern.FindAllString(string(made.Body), -1)
	if made.Status != http.StatusOK || len(slices.Compact(shown)) != 1 {
		t.Fatalf("the page shows %d tokens:\n%s", len(shown), made)
	}
	if made.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("the page with the token has Cache-Control %q", made.Header.Get("Cache-Control"))
	}
	token := shown[0]
	p.In(ws.Workspace, token).Get(t, programmes).Wants(t, http.StatusOK)
	p.In(ws.Workspace, token).JSON(t, http.MethodPost, programmes, map[string]any{"name": "x"}).
		WantsNested(t, http.StatusForbidden, "FORBIDDEN")

	again := owner.Arrive(t, developersURL(p, ws))
	again.WantsText(t, "Payroll bridge")
	if patPattern.Match(again.Body) {
		t.Error("the token is shown a second time")
	}
	revoke := again.FormWith(t, `form li:has(h3:contains("Payroll bridge")) button:contains("Revoke")`)
	owner.Submit(t, revoke)
	wantsBearerRejected(t, p, ws, token)
	p.In(ws.Workspace, ws.Token).Get(t, programmes).Wants(t, http.StatusOK) // the owner's other token
	gone := owner.Arrive(t, developersURL(p, ws))
	if gone.Find(`form li:has(h3:contains("Payroll bridge"))`).Length() != 0 {
		t.Error("the revoked token is still listed as active")
	}
}

// "The tenant identifier is copied from Settings → User." and "Replacement: create a new token, update the integration,
// then revoke the old one." (spec 5.2)
func TestPAT_IntegrationSetUpFromSettings(t *testing.T) {
	p, ws := inWorkspace(t)
	owner := p.Person(t, ws.Owner)
	user := owner.Arrive(t, p.AppURL+"/settings/user").WantsPage(t, http.StatusOK)
	user.WantsText(t, ws.Workspace.Name, ws.Owner.Email)
	if !slices.Contains(values(user.Find("input[readonly]")), ws.Workspace.ID) {
		t.Error("the tenant identifier is not in a read-only field")
	}
	newToken := func(name string) string {
		made := makeToken(t, owner, owner.Arrive(t, developersURL(p, ws)), name, "90", harness.ReadProgrammes)
		return patPattern.FindString(string(made.Body))
	}
	old := newToken("Old one")
	next := newToken("New one")
	for _, token := range []string{old, next} { // both work while the integration is updated
		p.In(ws.Workspace, token).Get(t, programmes).Wants(t, http.StatusOK)
	}
	page := owner.Arrive(t, developersURL(p, ws))
	revoke := page.FormWith(t, `form li:has(h3:contains("Old one")) button:contains("Revoke")`)
	owner.Submit(t, revoke)
	wantsBearerRejected(t, p, ws, old)
	p.In(ws.Workspace, next).Get(t, programmes).Wants(t, http.StatusOK)
}

// Contract, section 7: Connected apps lists every grant, and Disconnect revokes it.
func TestConnectedApps_DisconnectRevokesOneGrant(t *testing.T) {
	p, ws := inWorkspace(t)
	owner := p.Person(t, ws.Owner)
	connector, app := ws.Connector(t, harness.ReadProgrammes), ws.Confidential(t, "", harness.ReadProgrammes)
	tokens, long := connector.Connect(t, owner), app.Connect(t, owner)
	page := owner.Arrive(t, p.AppURL+"/settings/apps").WantsPage(t, http.StatusOK)
	page.WantsText(t, "Assistant of the office", "Gift Aid export", ws.Workspace.Name)
	owner.Submit(t, page.FormWith(t, `li:has(h3:contains("Assistant of the office")) form button`))
	connector.WantsRevoked(t, tokens)
	p.In(ws.Workspace, long.AccessToken).Get(t, programmes).Wants(t, http.StatusOK)
	replayed := connector.Connect(t, owner)
	connector.Refresh(t, replayed.RefreshToken).Tokens(t)
	connector.Refresh(t, replayed.RefreshToken).WantsFlat(t, http.StatusBadRequest, "invalid_grant")
	after := owner.Arrive(t, p.AppURL+"/settings/apps").Text()
	const why = "We disconnected Assistant of the office because an old access key of the application was used again"
	if !strings.Contains(after, why) {
		t.Errorf("the page does not say that a replay revoked the grant: %s", after)
	}
}
