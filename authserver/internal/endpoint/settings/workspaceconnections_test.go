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
	t.Parallel()
	site := browsertest.Own(t)
	ada, eve := developer(site), site.Member(perm.ProgrammesRead)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	first, second := site.Redeemed(app, eve.ID), site.Redeemed(app, eve.ID)
	other := site.Fixture.Workspace("Elsewhere")
	foreign := site.Redeemed(app, eve.ID)
	site.Fixture.Exec(`update account.grants set tenant_id = $2 where id = $1`, foreign.ID, other)
	browser := site.SignedIn(ada)
	page := browser.Get(connectors)
	if !page.HasText(eve.Email) || strings.Count(page.Body, disconnectButton) != 2 {
		t.Fatalf("%d buttons: %s", strings.Count(page.Body, disconnectButton), page.Text())
	}
	form := page.Form(disconnectPath)
	const active = `select count(*) from account.grants where id = $1 and state = 'active'`
	for name, id := range map[string]string{
		"of another workspace": foreign.ID.String(),
		"no id":                "",
		"unknown":              uuid.Must(uuid.NewV7()).String(),
	} {
		form.Set("id", id)
		if after := browser.Post(disconnectPath, form).Follow(); !after.HasText("no longer connected") {
			t.Errorf("%s: %s", name, after.Text())
		}
	}
	if site.Count(active, foreign.ID) != 1 {
		t.Error("a grant of another workspace was revoked")
	}
	form.Set("id", first.ID.String())
	if after := browser.Post(disconnectPath, form).Follow(); !after.HasText("was disconnected from the account of") {
		t.Errorf("%s", after.Text())
	}
	if site.Count(active, first.ID) != 0 || site.Count(active, second.ID) != 1 {
		t.Error("want only the first grant revoked")
	}
	if site.Count(`select count(*) from account.audit_events where action = $4 and actor = $2
		and subject = 'grant:' || $1 and detail ->> 'reason' = $3`,
		first.ID.String(), "user:"+ada.ID.String(), string(grant.ByAdmin), audit.GrantRevoked) != 1 {
		t.Error("the audit log does not say who disconnected it")
	}
	if hers := site.SignedIn(eve).Get("/settings/apps"); !hers.HasText("by an administrator") {
		t.Errorf("the member's page: %s", hers.Text())
	}
	refused := site.SignedIn(eve).Post(disconnectPath, url.Values{"id": {second.ID.String()}})
	if refused.Status != http.StatusForbidden {
		t.Errorf("a member without account:api:access: %d", refused.Status)
	}
}

func TestConnections_OlderOnesAreOnTheNextPage(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := developer(site, perm.ProgrammesRead)
	app, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	oldest := site.Redeemed(app, ada.ID)
	for range 25 {
		site.Redeemed(app, ada.ID)
	}
	browser := site.SignedIn(ada)
	first := browser.Get(connectors)
	if strings.Count(first.Body, disconnectButton) != 25 || strings.Contains(first.Body, oldest.ID.String()+`"`) {
		t.Fatalf("%d connections", strings.Count(first.Body, disconnectButton))
	}
	next := html.UnescapeString(older.FindStringSubmatch(first.Body + `href="">Show older`)[1])
	if second := browser.Get(next); strings.Count(second.Body, disconnectButton) != 1 ||
		!strings.Contains(second.Body, oldest.ID.String()) {
		t.Errorf("second page %q: %d connections", next, strings.Count(second.Body, disconnectButton))
	}
}

// The search finds a connection by the application, or by the name or address of the person.
func TestConnections_AreSearchable(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
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
		if got := strings.Count(page.Body, disconnectButton); got != want {
			t.Errorf("%.30q finds %d connections, want %d", words, got, want)
		}
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
	t.Parallel()
	site := browsertest.Own(t)
	ada := developer(site, perm.ProgrammesRead, perm.AccountReadMembers, perm.AccountWriteMembers)
	app := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	site.Redeemed(app, ada.ID)
	browser := site.SignedIn(ada)
	const on = `select count(*) from account.tenant_features where tenant_id = $1 and enabled`
	ask := browser.Post(llmPath, browser.Get(connectors).Form(llmPath))
	if !ask.HasText("1 connected assistant loses its access immediately") ||
		site.Count(on, site.Fixture.WorkspaceID) != 1 {
		t.Fatalf("%d %s", ask.Status, ask.Text())
	}
	off := browser.Post(llmPath, ask.Form(llmPath)).Follow()
	if !off.HasText("is now off") || site.Count(on, site.Fixture.WorkspaceID) != 0 {
		t.Fatalf("%d %s", off.Status, off.Text())
	}
	if again := browser.Post(llmPath, ask.Form(llmPath)).Follow(); !again.HasText("is already off") {
		t.Errorf("%s", again.Text())
	}
	if log := browser.Get("/settings/audit"); !log.HasText("LLM integration") {
		t.Errorf("audit log: %s", log.Text())
	}
	if back := browser.Post(llmPath, off.Form(llmPath)).Follow(); !back.HasText("is now on") ||
		site.Count(on, site.Fixture.WorkspaceID) != 1 {
		t.Errorf("%d %s", back.Status, back.Text())
	}
	if bad := browser.Post(llmPath, url.Values{"key": ask.Form(llmPath)["key"], "state": {"x"}}); bad.Status != 400 {
		t.Errorf("bad state: %d", bad.Status)
	}
}

func TestLLM_RequiresPermissionToManageMembers(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	browser := site.SignedIn(developer(site, perm.ProgrammesRead, perm.AccountReadMembers))
	page := browser.Get(connectors)
	if strings.Contains(page.Body, llmPath) {
		t.Error("the page offers the switch")
	}
	form := page.Form(connectors + "/policy")
	form.Set("state", "off")
	form.Set("confirm", "yes")
	if refused := browser.Post(llmPath, form); refused.Status != 403 || !refused.HasText("you need the permission") {
		t.Errorf("%d %s", refused.Status, refused.Text())
	}
	if site.Count(`select count(*) from account.tenant_features where tenant_id = $1 and enabled`,
		site.Fixture.WorkspaceID) != 1 {
		t.Error("it was switched off")
	}
}
