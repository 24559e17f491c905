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
	if err != nil {
		t.Fatal(err)
	}
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
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
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

func TestPAT_LastsSevenThirtyOrNinetyDays(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner)
	page := newTokenPage(t, owner, owner.Arrive(t, developersURL(p, ws)))
	if got := values(page.Find(tokenForm + "input[name=days]")); !slices.Equal(got, []string{"30", "7", "90"}) {
		t.Errorf("the choices are %v", got)
	}
	for days, want := range map[string]int{"7": 7, "30": 30, "90": 90} {
		made := makeToken(t, owner, owner.Arrive(t, developersURL(p, ws)), "For "+days, days,
			harness.ReadProgrammes).Wants(t, http.StatusOK)
		if !patPattern.Match(made.Body) {
			t.Fatalf("no token for %s days", days)
		}
		lasts := p.Database.Count(
			t,
			`select extract(epoch from expires_at - created_at)::int from account.personal_access_tokens
						where tenant_id = $1 and name = $2`,
			ws.Workspace.ID,
			"For "+days,
		)
		wantsSeconds(t, "the token's lifetime", lasts, want*24*3600)
	}
	for _, days := range []string{"1", "8", "91", "365", "0", "-7", "", "7.0", "30 ", "forever"} {
		refused := makeToken(t, owner, page, "Odd", days, harness.ReadProgrammes)
		if refused.Status != http.StatusBadRequest || patPattern.Match(refused.Body) {
			t.Errorf("%q days:\n%s", days, refused)
		}
	}
}

// "Only permissions the creator holds in that workspace may be selected." (spec 2.1)
func TestPAT_LimitedToCreatorsPermissions(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	member := p.Person(t, ws.Member(t, harness.APIAccess, harness.ReadProgrammes))
	page := newTokenPage(t, member, member.Arrive(t, developersURL(p, ws)))
	got := values(page.Find(tokenForm + "input[name=permissions]"))
	if !slices.Equal(got, sorted([]string{harness.APIAccess, harness.ReadProgrammes})) {
		t.Errorf("the form offers the permissions %v", got)
	}
	for name, wrong := range map[string][]string{
		"not held":     {harness.WriteProgrammes},
		"one not held": {harness.ReadProgrammes, harness.WriteProgrammes},
		"unknown":      {"programmes:delete:programmes"},
		"none":         nil,
	} {
		t.Run(name, func(t *testing.T) {
			refused := makeToken(t, member, page, "Too much", "7", wrong...)
			if refused.Status != http.StatusBadRequest || patPattern.Match(refused.Body) {
				t.Errorf("want 400:\n%s", refused)
			}
		})
	}
	t.Run("no name", func(t *testing.T) {
		makeToken(t, member, page, "", "7", harness.ReadProgrammes).WantsPage(t, http.StatusBadRequest)
	})
	count := p.Database.Count(t, `select count(*) from account.personal_access_tokens where user_id = $1`, member.ID)
	if count != 0 {
		t.Errorf("%d tokens were created", count)
	}
}

// "Required to open the Developers tab, create personal access tokens and register OAuth clients." (spec 2.3)
func TestPAT_DevelopersNeedsAPIAccess(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	owner, reader := p.Person(t, ws.Owner), p.Person(t, ws.Member(t, harness.ReadProgrammes)).SignedIn(t)
	reader.Open(t, developersURL(p, ws)).WantsPage(t, http.StatusForbidden)
	stranger := p.Person(t, p.Database.User(t)).SignedIn(t)
	stranger.Open(t, developersURL(p, ws)).WantsPage(t, http.StatusForbidden)
	page := newTokenPage(t, owner, owner.Arrive(t, developersURL(p, ws))).WantsPage(t, http.StatusOK)
	p.Database.Permit(t, ws.Workspace, ws.Owner, harness.ReadProgrammes)
	refused := makeToken(t, owner, page, "Late", "7", harness.ReadProgrammes)
	if refused.Status != http.StatusForbidden || patPattern.Match(refused.Body) {
		t.Errorf("want 403:\n%s", refused)
	}
}

// "The tenant identifier is copied from Settings → User." and "Replacement: create a new token, update the integration,
// then revoke the old one." (spec 5.2)
func TestPAT_IntegrationSetUpFromSettings(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
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
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
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
