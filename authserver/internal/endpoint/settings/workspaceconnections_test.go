package settings_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

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

func TestConnections_OlderOnesAreOnTheNextPage(t *testing.T) {
	site := shared(t)
	ada := developer(site, perm.ProgrammesRead)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	oldest := site.Redeemed(app, ada.ID)
	for range 25 {
		site.Redeemed(app, ada.ID)
	}
	browser := site.SignedIn(ada)
	first := browser.Get(connectors)
	first.Omits(oldest.ID.String()+`"`).Times(25, disconnectButton)
	next := html.UnescapeString(older.FindStringSubmatch(first.Body + `href="">Show older`)[1])
	browser.Get(next).Contains(oldest.ID.String()).Times(1, disconnectButton)
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
		if empty := page.HasText("No connection matches"); page.Status != http.StatusOK || empty != (want == 0) {
			t.Errorf("%.30q: %d %s", words, page.Status, page.Text())
		}
	}
}

const llmPath = connectors + "/llm"

func TestLLM_AdministratorSwitchesItOffAndOn(t *testing.T) {
	site := shared(t)
	ada := developer(site, perm.ProgrammesRead, perm.AccountReadMembers, perm.AccountWriteMembers)
	site.Redeemed(site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead), ada.ID)
	browser := site.SignedIn(ada)
	const on = `select count(*) from account.tenant_features where tenant_id = $1 and enabled`
	ask := browser.Post(llmPath, browser.Get(connectors).Form(llmPath))
	ask.Says("1 connected assistant loses its access immediately")
	site.CountIs(1, on, site.Fixture.WorkspaceID)
	off := browser.Post(llmPath, ask.Form(llmPath)).Follow()
	off.Says("is now off")
	site.CountIs(0, on, site.Fixture.WorkspaceID)
	browser.Post(llmPath, ask.Form(llmPath)).Follow().Says("is already off")
	browser.Get("/settings/audit").Says("LLM integration")
	browser.Post(llmPath, off.Form(llmPath)).Follow().Says("is now on")
	site.CountIs(1, on, site.Fixture.WorkspaceID)
	browser.Post(llmPath, url.Values{"key": ask.Form(llmPath)["key"], "state": {"x"}}).Wants(400)
}

func TestLLM_RequiresPermissionToManageMembers(t *testing.T) {
	site := shared(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead, perm.AccountReadMembers))
	page := browser.Get(connectors)
	page.Omits(llmPath)
	form := page.Form(connectors + "/policy")
	form.Set("state", "off")
	form.Set("confirm", "yes")
	browser.Post(llmPath, form).Wants(403, "you need the permission")
	site.CountIs(1, `select count(*) from account.tenant_features where tenant_id = $1 and enabled`,
		site.Fixture.WorkspaceID)
}
