package settings_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func policyForm(page *browsertest.Page, days string, platforms []string, permissions ...perm.Permission) url.Values {
	form := page.Form(policyPath)
	form.Del("confirm")
	form["platforms"], form["permissions"] = platforms, perm.NewSet(permissions...).Strings()
	form.Set("days", days)
	return form
}

// savePolicy sends the form with a policy.
func savePolicy(
	browser *browsertest.Browser, days string, platforms []string, permissions ...perm.Permission,
) *browsertest.Page {
	return browser.Post(policyPath, policyForm(browser.Get(connectors), days, platforms, permissions...))
}

const policyPath = connectors + "/policy"

var (
	claudeAlone  = []string{"claude"}
	anyPlatform  = []string{"claude", "chatgpt", "other"}
	readAndWrite = []perm.Permission{perm.ProgrammesRead, perm.ProgrammesWrite}
)

func TestConnectorPolicy_IsShownAndSaved(t *testing.T) {
	_, _, browser := inSettings(t)
	page := browser.Get(connectors)
	page.Keeps(policyPath, "platforms", "claude chatgpt other", "permissions", perm.ForConnectors().Scope(),
		"days", "30")
	page.Wants(http.StatusOK, "Riverside Food Bank", "Claude", "ChatGPT", "Other assistants", "Read form submissions",
		"Personal data", "Makes changes")
	saved := browser.Post(policyPath, policyForm(page, " 7 ", claudeAlone, readAndWrite...)).Follow()
	saved.Says("The assistant rules of Riverside Food Bank were saved.")
	saved.Keeps(policyPath, "platforms", "claude", "permissions", perm.NewSet(readAndWrite...).Scope(), "days", "7")
	browser.Post(policyPath, saved.Form(policyPath)).Follow().Says("were not changed")
	none := browser.Post(policyPath, policyForm(saved, "7", nil, readAndWrite...)).Follow()
	none.Says("The assistant rules of Riverside Food Bank were saved.").Keeps(policyPath, "platforms", "")
	browser.Get("/settings/audit").Says("Changed the assistant rules", "access lasts 7 days instead of 30",
		"no longer allowed: See public forms", "allowed assistants: Claude", "allowed assistants: none")
}

func TestConnectorPolicy_BadFormKeepsInput(t *testing.T) {
	site, _, browser := inSettings(t)
	const number = "Enter a number of days from 1 to 30"
	manage := []perm.Permission{perm.AccountAPIAccess}
	for name, c := range map[string]struct {
		days        string
		platforms   []string
		permissions []perm.Permission
		words       string
	}{
		"no number":            {"a week", anyPlatform, readAndWrite, number},
		"nothing":              {"", anyPlatform, readAndWrite, number},
		"too long":             {"31", claudeAlone, readAndWrite, number},
		"no permission":        {"5", claudeAlone, nil, "at least one permission"},
		"write without read":   {"5", claudeAlone, readAndWrite[1:], "requires “See programmes”"},
		"not for connectors":   {"5", claudeAlone, manage, "Assistants cannot have this"},
		"an unknown platform":  {"5", []string{"claude", "gemini"}, readAndWrite, "claude, chatgpt or other"},
		"a very long number":   {"99999999999999999999", claudeAlone, readAndWrite, number},
		"what looks like HTML": {`"><b>7`, claudeAlone, readAndWrite, number},
	} {
		page := savePolicy(browser, c.days, c.platforms, c.permissions...)
		page.As(name).Wants(http.StatusBadRequest, c.words, "The assistant rules were not saved.").
			Contains(`<li><a href="#`).Keeps(policyPath, "days", c.days)
		if !slices.Contains(page.Form(policyPath)["platforms"], "claude") {
			t.Errorf("%s: the chosen platform came back unchecked", name)
		}
	}
	site.Rows(0, "connector_policies", "")
}

func TestConnectorPolicy_LoweringNeedsConfirmationAndNarrowsGrants(t *testing.T) {
	site, ada, browser := inSettings(t, readAndWrite...)
	app := site.Fixture.Connector(browsertest.Resource, readAndWrite...)
	writer := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesWrite)
	first, second, third := site.Redeemed(app, ada.ID), site.Redeemed(app, ada.ID), site.Redeemed(writer, ada.ID)
	// The messages name the workspace, also if it is not the user's only one.
	site.Fixture.Join(site.Fixture.Workspace("Abbey Lane Larder"), ada.ID, perm.AccountAPIAccess)
	browser.Get(connectors + "?tenant=" + site.Fixture.WorkspaceID.String())
	site.Consent(app, ada.ID) // approvals whose code was not redeemed are no connections
	site.Consent(writer, ada.ID)
	warning := savePolicy(browser, "7", anyPlatform, perm.ProgrammesRead)
	warning.Wants(http.StatusOK, "connected assistants in Riverside Food Bank",
		"You lose Claude; 2 connected apps lose permissions.",
		"2 connected apps expire sooner.")
	site.Rows(3, "grants", `state = 'active' and narrowed_at is null and ends_at > now() + interval '29 days'`)
	form := warning.Form(policyPath)
	warning.Keeps(policyPath, "confirm", "yes")
	browser.Post(policyPath, form).Follow().Says("The assistant rules of Riverside Food Bank were saved. " +
		"1 connection ended. " +
		"2 connections lost permissions. 2 connections got an earlier expiry date.")
	for _, g := range []grant.Grant{first, second} {
		site.Rows(1, "grants", `id = $1 and state = 'active'
			and permissions = '{programmes:read:programmes}' and ends_at < now() + interval '8 days'`, g.ID)
	}
	site.Rows(1, "grants", `id = $1 and revoke_reason = 'connector_policy'`, third.ID)
	browser.Get("/settings/apps").Says("reduced this access on", "no longer allow it")
	browser.Get("/settings/audit").Says("The assistant rules reduced the access of Claude",
		"Removed: Add and change programmes", "Expires on", "An approval of Claude ended before it was used",
		"2 connections reduced", "1 unused approval reduced", "1 connection ended", "1 unused approval ended")
	savePolicy(browser, "30", anyPlatform, perm.ForConnectors()...).Wants(http.StatusSeeOther)
	site.Rows(2, "grants", `state = 'active'
			and permissions = '{programmes:read:programmes}' and ends_at < now() + interval '8 days'`)
}

const overtaken = "The assistant rules were changed after you opened this page. Your changes were not saved."

// A change on an outdated page must not allow again what another user has just forbidden.
func TestConnectorPolicy_OutdatedPageDoesNotOverwrite(t *testing.T) {
	site := shared(t)
	ada, eve := site.SignedIn(developer(site)), site.SignedIn(developer(site))
	old := eve.Get(connectors).Form(policyPath)
	savePolicy(ada, "30", claudeAlone, perm.ProgrammesRead).Follow()
	const unchanged = `platforms = '{claude}' and permissions = '{programmes:read:programmes}' and days = 30`
	old.Set("days", "7")
	page := eve.Post(policyPath, old)
	page.Wants(http.StatusConflict, overtaken)
	site.Rows(1, "connector_policies", unchanged)
	page.Keeps(policyPath, "platforms", "claude", "permissions", string(perm.ProgrammesRead), "days", "30")
	shown := page.Form(policyPath)
	old.Set("days", "31") // is refused with the input kept, for the policy that the page showed
	again := eve.Post(policyPath, old).Form(policyPath)
	again.Set("days", "7")
	for name, form := range map[string]url.Values{
		"after a correction":    again,
		"confirmed":             with(old, "days", "7", "confirm", "yes"),
		"without what was seen": with(old, "days", "7", "seen", ""),
		"with rubbish":          with(old, "days", "7", "seen", "x"),
	} {
		eve.Post(policyPath, form).As(name).Wants(http.StatusConflict)
		site.Rows(1, "connector_policies", unchanged)
	}
	shown.Set("days", "7")
	eve.Post(policyPath, shown).Follow().Says("were saved.")
	site.Rows(1, "connector_policies", `platforms = '{claude}' and days = 7`)
}

// A confirmation applies to the policy that the warning showed. If it was changed in between, the user must look at it
// first.
func TestConnectorPolicy_OutdatedConfirmationIsRefused(t *testing.T) {
	site := shared(t)
	ada := developer(site, readAndWrite...)
	site.Redeemed(site.Fixture.Connector(browsertest.Resource, readAndWrite...), ada.ID)
	browser, other := site.SignedIn(ada), site.SignedIn(developer(site))
	warning := savePolicy(browser, "7", anyPlatform, readAndWrite...)
	confirm := warning.Form(policyPath)
	warning.Keeps(policyPath, "confirm", "yes")
	savePolicy(other, "30", []string{"claude", "chatgpt"}, perm.ForConnectors()...).Wants(http.StatusSeeOther)
	browser.Post(policyPath, confirm).Wants(http.StatusConflict, overtaken).Lacks("Apply the change")
	site.Rows(0, "grants", `narrowed_at is not null or state <> 'active'`)
}

func TestConnectorPolicy_ConcurrentSavesKeepOne(t *testing.T) {
	site, _, browser := inSettings(t)
	form := browser.Get(connectors).Form(policyPath)
	answers := atOnce(8, func(i int) *browsertest.Page {
		return browser.Post(policyPath, with(form, "days", strconv.Itoa(i+1)))
	})
	saved := 0
	for i, page := range answers {
		switch page.Status {
		case http.StatusSeeOther:
			saved = i + 1
		case http.StatusConflict:
		default:
			t.Errorf("%d %s", page.Status, page.Text())
		}
	}
	site.Rows(1, "connector_policies", `days = $1`, saved)
	site.Rows(1, "audit_events", `action = '`+audit.ConnectorPolicyChanged+`'`)
}

const (
	disconnectPath   = connectors + "/disconnect"
	disconnectButton = `name="id" value="`
)

var older = regexp.MustCompile(`href="([^"]*)">Show older`)

// An administrator sees the connections of all members of the workspace, and ends one.
func TestConnections_AdministratorEndsConnectionOfMember(t *testing.T) {
	site := shared(t)
	ada, eve := developer(site), site.Member(perm.ProgrammesRead)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	first, second := site.Redeemed(app, eve.ID), site.Redeemed(app, eve.ID)
	other := site.Fixture.Workspace("Elsewhere")
	foreign := site.Redeemed(app, eve.ID)
	site.Fixture.Exec(`update account.grants set tenant_id = $2 where id = $1`, foreign.ID, other)
	browser := site.SignedIn(ada)
	page := browser.Get(connectors)
	page.Says(eve.Email)
	page.Times(2, disconnectButton)
	form := page.Form(disconnectPath)
	const active = `select count(*) from account.grants where id = $1 and state = 'active'`
	for name, id := range map[string]string{
		"of another workspace": foreign.ID.String(),
		"no id":                "",
		"unknown":              uuid.Must(uuid.NewV7()).String(),
	} {
		form.Set("id", id)
		browser.Post(disconnectPath, form).Follow().As(name).Says("no longer connected")
	}
	site.CountIs(1, active, foreign.ID)
	form.Set("id", first.ID.String())
	browser.Post(disconnectPath, form).Follow().Says("was disconnected from the account of")
	site.CountIs(0, active, first.ID)
	site.CountIs(1, active, second.ID)
	site.Rows(1, "audit_events", `action = $4 and actor = $2 and subject = 'grant:' || $1 and detail ->> 'reason' = $3`,
		first.ID.String(), "user:"+ada.ID.String(), string(grant.ByAdmin), audit.GrantRevoked)
	site.SignedIn(eve).Get("/settings/apps").Says("by an administrator")
	site.SignedIn(eve).Post(disconnectPath, url.Values{"id": {second.ID.String()}}).Wants(http.StatusForbidden)
}

// The page shows the latest connections and their number, and the list of all has pages.
func TestConnections_OlderOnesAreOnTheNextPage(t *testing.T) {
	site := shared(t)
	ada := developer(site, perm.ProgrammesRead)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	oldest := site.Redeemed(site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead), ada.ID)
	site.Fixture.Exec(`update account.grants set created_at = now() - interval '1 hour' where id = $1`, oldest.ID)
	connections(site, app, ada, 25)
	site.Consent(app, ada.ID) // is no connection yet
	browser := site.SignedIn(ada)
	latest := browser.Get(connectors).Omits(oldest.ID.String()+`"`).Times(5, disconnectButton)
	latest.Says("1 assistant and 25 other apps are connected.", "Connected apps 26")
	first := browser.Get(latest.Attribute("a[href$='all=1']", "href"))
	first.Says("Connected apps", "Connected now 26").Omits(oldest.ID.String()+`"`).Times(25, disconnectButton)
	next := html.UnescapeString(older.FindStringSubmatch(first.Body + `href="">Show older`)[1])
	last := browser.Get(next).Contains(oldest.ID.String()).Times(1, disconnectButton)
	last.Send(disconnectPath, browsertest.Fields{"id": oldest.ID.String()}).Follow().
		Says("was disconnected", "Connected now 25")
	browser.Get(connectors).Says("No assistant is connected. 25 other apps are connected.")
}

// The search finds a connection by the application, or by the name or address of the person.
func TestConnections_AreSearchable(t *testing.T) {
	site := shared(t)
	ada, sam := developer(site, perm.ProgrammesRead), site.Member(perm.ProgrammesRead)
	site.Fixture.Exec(`update account.users set name = 'Sam 100% Reed' where id = $1`, sam.ID)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	own, other := site.Redeemed(app, ada.ID), site.Redeemed(app, sam.ID)
	site.Redeemed(app, ada.ID)
	browser := site.SignedIn(ada)
	for words, want := range map[string]int{
		"":                             3,
		"100% reed":                    1,
		strings.ToUpper(sam.Email):     1,
		ada.Email:                      2,
		"donor":                        3,
		"1_0":                          0,
		"' or true --":                 0,
		strings.Repeat("a", 201):       3, // not a search
		own.ID.String() + " " + "Reed": 0,
	} {
		page := browser.Get(connectors + "?q=" + url.QueryEscape(words))
		page.Times(want, disconnectButton)
		if found := strings.Contains(page.Body, other.ID.String()); words == ada.Email && found {
			t.Errorf("%q finds the connection of another person", words)
		}
		if empty := page.HasText("No connected app matches"); page.Status != http.StatusOK || empty != (want == 0) {
			t.Errorf("%.30q: %d %s", words, page.Status, page.Text())
		}
	}
}

const llmPath = connectors + "/llm"

func TestLLM_AdministratorSwitchesItOffAndOn(t *testing.T) {
	site, ada, browser := inSettings(t, perm.ProgrammesRead, perm.AccountReadMembers, perm.AccountWriteMembers)
	site.Redeemed(site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead), ada.ID)
	const on = `select count(*) from account.tenant_features where tenant_id = $1 and enabled`
	ask := browser.Post(llmPath, browser.Get(connectors).Form(llmPath))
	ask.Says("cannot use Claude until AI assistants are switched on again.")
	site.CountIs(1, on, site.Fixture.WorkspaceID)
	off := browser.Post(llmPath, ask.Form(llmPath)).Follow()
	off.Says("AI assistants are now switched off in Riverside Food Bank.", "AI assistants are switched off")
	site.CountIs(0, on, site.Fixture.WorkspaceID)
	browser.Post(llmPath, ask.Form(llmPath)).Follow().Says("are already switched off")
	browser.Get("/settings/audit").Says("Switched AI assistants off")
	browser.Post(llmPath, off.Form(llmPath)).Follow().Says("are now switched on")
	site.CountIs(1, on, site.Fixture.WorkspaceID)
	browser.Post(llmPath, url.Values{"key": ask.Form(llmPath)["key"], "state": {"x"}}).Wants(400)
}

func TestLLM_RequiresPermissionToManageMembers(t *testing.T) {
	site, _, browser := inSettings(t, perm.ProgrammesRead, perm.AccountReadMembers)
	page := browser.Get(connectors)
	page.Omits(llmPath).Says("AI assistants are switched on")
	form := with(page.Form(policyPath), "state", "off", "confirm", "yes")
	browser.Post(llmPath, form).Wants(403, "you need the permission")
	site.CountIs(1, `select count(*) from account.tenant_features where tenant_id = $1 and enabled`,
		site.Fixture.WorkspaceID)
}
