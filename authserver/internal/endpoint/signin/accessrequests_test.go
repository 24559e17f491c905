package signin_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

const asking = "/access-requests"

// start serves a site that queues mails for a server that does not answer.
func start(t *testing.T) *browsertest.Server {
	t.Helper()
	return browsertest.Own(t, func(c *app.Config, _ string) {
		c.SMTPURL, c.MailFrom = "smtp://127.0.0.1:1?tls=none", "Almoner <almoner@example.org>"
	})
}

// consent returns the path of a valid authorization request.
func consent(c client.Client) string {
	return "/oauth/authorize?" + url.Values{
		"client_id":             {c.ID.String()},
		"redirect_uri":          {c.Redirects[0]},
		"state":                 {"s"},
		"response_type":         {"code"},
		"resource":              {browsertest.Resource},
		"code_challenge":        {strings.Repeat("a", 43)},
		"code_challenge_method": {"S256"},
	}.Encode()
}

func mails(site *browsertest.Server) int {
	return site.Count(`select count(*) from account_jobs.river_job`)
}

func asks(page *browsertest.Page) int {
	n := 0
	for _, form := range page.Elements("form") {
		if browsertest.Attribute(form, "action") == asking {
			n++
		}
	}
	return n
}

func wants(t *testing.T, what string, page *browsertest.Page, status int, words string) {
	t.Helper()
	if page.Status != status || !page.HasText(words) {
		t.Errorf("%s: %d, want %d and %q: %s", what, page.Status, status, words, page.Text())
	}
}

func TestR2_MemberAsksOnceADay(t *testing.T) {
	site := start(t)
	boss := site.Member(perm.AccountReadMembers, perm.AccountWriteMembers, perm.ProgrammesRead, perm.ProgrammesWrite)
	site.Member(perm.AccountReadMembers, perm.AccountWriteMembers) // cannot give the permission
	reader := site.Member(perm.ProgrammesRead)
	browser := site.SignedIn(reader)
	program, _ := site.Fixture.Confidential(perm.ProgrammesRead, perm.ProgrammesWrite)
	page := browser.Get(consent(program))
	wants(t, "the page", page, http.StatusForbidden, "Ask an administrator")
	asked := page.Send(asking, nil)
	wants(t, "asked", asked, http.StatusOK, "We asked the administrators")
	if n := mails(site); n != 1 {
		t.Errorf("%d mails, want 1: to the member who can give the permission", n)
	}
	wants(t, "asked twice", page.Send(asking, nil), http.StatusOK, "You have already asked")
	wants(t, "for something else", browser.Get("/settings/developers").Send(asking, nil), http.StatusOK,
		"You have already asked")
	if n := site.Count(`select count(*) from account.audit_events where action = $3
		and user_id = $1 and tenant_id = $2 and detail->>'recipients' = '1' and detail->>'member' = 'true'`,
		reader.ID, site.Fixture.WorkspaceID, audit.AccessRequested); n != 1 || mails(site) != 1 {
		t.Errorf("%d events, %d mails", n, mails(site))
	}
	site.Fixture.Exec(`update account.access_requests set asked_at = asked_at - interval '1 day'`)
	wants(t, "a day later", page.Send(asking, nil), http.StatusOK, "We asked the administrators")

	form := site.SignedIn(boss).Get("/settings/members/member?tenant=" + site.Fixture.WorkspaceID.String() + "&id=" +
		reader.ID.String() + "&asked=1")
	chosen := form.Form("/settings/members/permissions")["permissions"]
	wants(t, "the administrator's form", form, http.StatusOK, "asked for access")
	if strings.Join(chosen, " ") != "programmes:read:programmes programmes:write:programmes" {
		t.Errorf("the form has %v", chosen)
	}
	if n := site.Count(`select count(*) from account.memberships where user_id = $1
		and 'programmes:write:programmes' = any(permissions)`, reader.ID); n != 0 {
		t.Error("a GET gave the permission")
	}
	saved := site.SignedIn(boss)
	values := saved.Get("/settings/members/member?tenant=" + site.Fixture.WorkspaceID.String() + "&id=" +
		reader.ID.String() + "&asked=1").Form("/settings/members/permissions")
	if page := saved.Post("/settings/members/permissions", values); page.Status != http.StatusSeeOther {
		t.Fatalf("%d %s", page.Status, page.Text())
	}
	wants(t, "given meanwhile", page.Send(asking, nil), http.StatusOK, "You have this access now")
}

func TestR2_OthersAreLimitedAndMembersAreNot(t *testing.T) {
	site := start(t)
	boss := site.Member(perm.AccountReadMembers, perm.AccountWriteMembers, perm.ProgrammesRead)
	program, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	stranger := site.Stranger()
	page := site.SignedIn(stranger).Get(consent(program))
	wants(t, "not a member", page, http.StatusForbidden, "You are not a member of this workspace")
	if page.HasText("Riverside Food Bank") {
		t.Errorf("the page names the workspace: %s", page.Text())
	}
	for range 10 {
		site.Fixture.Exec(`insert into account.access_requests (user_id, tenant_id, permissions, application, member)
			values ($1, $2, '{}', '', false)`, site.Stranger().ID, site.Fixture.WorkspaceID)
	}
	wants(t, "the eleventh", page.Send(asking, nil), http.StatusTooManyRequests, "Too many people have asked today")
	member := site.SignedIn(site.Member(perm.EngageReadForms))
	wants(t, "a member", member.Get(consent(program)).Send(asking, nil), http.StatusOK, "We asked the administrators")
	site.Fixture.Exec(`delete from account.access_requests where not member`)
	wants(t, "asked", page.Send(asking, nil), http.StatusOK, "We asked the administrators")
	form := site.SignedIn(boss).Get("/settings/members?asked=" + stranger.ID.String()).Follow().
		Form("/settings/members/invite")
	if form.Get("email") != stranger.Email || form.Get("permissions") != "programmes:read:programmes" {
		t.Errorf("the form of the invitation has %v", form)
	}
	reader := site.SignedIn(site.Member(perm.AccountReadMembers))
	if page := reader.Get("/settings/members?asked=" + stranger.ID.String()).Follow(); page.HasText(stranger.Email) {
		t.Error("a member who cannot invite sees the address of a person who asked")
	}
	unasked := site.Stranger()
	page = site.SignedIn(boss).Get("/settings/members?asked=" + unasked.ID.String()).Follow()
	if page.HasText(unasked.Email) {
		t.Error("the page shows the address of a user who did not ask")
	}
}

// Only pages that know the workspace offer the button, so that it does not tell whether a workspace exists.
func TestR1_NoRequestAboutOtherWorkspaces(t *testing.T) {
	site := start(t)
	site.Member(perm.AccountWriteMembers)
	elsewhere := site.Fixture.Workspace("Elsewhere")
	browser := site.SignedIn(site.Member(perm.ProgrammesRead))
	texts := map[string]bool{}
	for _, id := range []uuid.UUID{elsewhere, uuid.New()} {
		page := browser.Get("/settings/members?tenant=" + id.String())
		texts[page.Text()[:200]] = true
		if page.Status != http.StatusForbidden || asks(page) != 0 {
			t.Errorf("%d, %d forms: %s", page.Status, asks(page), page.Text())
		}
		address := site.Clients.Client("/oauth/client", nil, "https://app.example.org/callback")
		choice := browser.Get("/oauth/authorize?" + url.Values{
			"client_id":             {address},
			"redirect_uri":          {"https://app.example.org/callback"},
			"state":                 {"s"},
			"response_type":         {"code"},
			"resource":              {browsertest.Resource},
			"code_challenge":        {strings.Repeat("a", 43)},
			"code_challenge_method": {"S256"},
		}.Encode())
		chosen := choice.Send("/oauth/authorize/workspace",
			browsertest.Fields{"workspace": id.String(), "decision": "choose"})
		wants(t, "a chosen workspace", chosen, http.StatusForbidden, "You are not a member of the chosen workspace")
		if asks(chosen) != 0 {
			t.Error("the page offers a request to a workspace that the user chose")
		}
	}
	if len(texts) != 1 {
		t.Errorf("unknown and other workspaces get different pages: %v", texts)
	}
	if page := browser.Get("/settings/members"); asks(page) != 1 {
		t.Errorf("%d forms for the own workspace", asks(page))
	}
}

func TestR1_TicketIsBoundToSignIn(t *testing.T) {
	site := start(t)
	site.Member(perm.AccountWriteMembers, perm.AccountReadMembers)
	ada, eve := site.SignedIn(site.Member(perm.ProgrammesRead)), site.SignedIn(site.Member(perm.ProgrammesRead))
	page := ada.Get("/settings/members")
	form := page.Form(asking)
	letter := "x"
	if form.Get("ticket")[20:21] == letter {
		letter = "y"
	}
	forged := url.Values{"ticket": {form.Get("ticket")[:20] + letter + form.Get("ticket")[21:]}}
	wants(t, "another user", eve.Post(asking, form), http.StatusForbidden, "out of date")
	wants(t, "signed out", site.Browser().Post(asking, form), http.StatusForbidden, "out of date")
	wants(t, "altered", ada.Post(asking, forged), http.StatusForbidden, "out of date")
	wants(t, "no ticket", ada.Post(asking, url.Values{}), http.StatusForbidden, "out of date")
	ada.Headers.Set("Sec-Fetch-Site", "cross-site")
	wants(t, "another site", ada.Post(asking, form), http.StatusForbidden, "")
	ada.Headers = http.Header{}
	if n := mails(site); n != 0 {
		t.Errorf("%d mails", n)
	}
	wants(t, "valid", ada.Post(asking, form), http.StatusOK, "We asked the administrators")
	hers := eve.Get("/settings/members").Form(asking)
	site.Fixture.Exec(`update account.users set disabled_at = now() where email like 'person%'
		and id in (select user_id from account.memberships where 'account:write:members' = any(permissions))`)
	wants(t, "no administrator", eve.Post(asking, hers), http.StatusOK, "No administrator can be asked")
	page = eve.Get("/settings/members")
	wants(t, "no administrator", page, http.StatusForbidden, "No other member of Riverside Food Bank can do this.")
	if asks(page) != 0 || page.HasText("An administrator of the workspace can give it to you.") {
		t.Errorf("a user is told to ask where no member can be asked: %s", page.Text())
	}
}

func TestAsk_LLMIntegration(t *testing.T) {
	site := start(t)
	site.Member(perm.AccountAPIAccess, perm.AccountWriteMembers)
	site.Fixture.SetLLM(false)
	caller := site.SignedIn(site.Member(perm.AccountAPIAccess, perm.ProgrammesRead))
	assistant := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	refused := caller.Get(consent(assistant))
	wants(t, "consent", refused, http.StatusForbidden, "Connectors are switched off")
	if asks(refused) != 1 || asks(caller.Get("/settings/connectors")) != 1 {
		t.Error("the pages do not offer to ask")
	}
	answer := refused.Send(asking, nil)
	wants(t, "asked", answer, http.StatusOK, "We asked the administrators")
	back := ""
	for _, link := range answer.Elements("a") {
		if href := browsertest.Attribute(link, "href"); strings.HasPrefix(href, "/oauth/authorize?") {
			back = href
		}
	}
	if back != consent(assistant) {
		t.Errorf("the page leads back to %q", back)
	}
	if n := site.Count(`select count(*) from account.audit_events where action = $1
		and detail->>'llm_integration' = 'true'`, audit.AccessRequested); n != 1 || mails(site) != 1 {
		t.Errorf("%d events, %d mails", n, mails(site))
	}
}

func TestAsk_WithoutMailPageNamesManagers(t *testing.T) {
	site := browsertest.Own(t)
	boss := site.Member(perm.AccountReadMembers, perm.AccountWriteMembers, perm.ProgrammesWrite, perm.ProgrammesRead)
	program, _ := site.Fixture.Confidential(perm.ProgrammesRead, perm.ProgrammesWrite)
	for name, c := range map[string]struct {
		who   browsertest.Person
		named bool
	}{
		"sees members":      {site.Member(perm.ProgrammesRead, perm.AccountReadMembers), true},
		"does not see them": {site.Member(perm.ProgrammesRead), false},
		"not a member":      {site.Stranger(), false},
	} {
		page := site.SignedIn(c.who).Get(consent(program))
		if page.Status != http.StatusForbidden || page.HasText(boss.Email) != c.named || asks(page) != 0 ||
			!page.HasText("dministrator of") {
			t.Errorf("%s: %d %s", name, page.Status, page.Text())
		}
	}
}

// The members who can change the policy get the mail. Those who only manage members do not.
func TestAsk_ConnectorPolicy(t *testing.T) {
	site := start(t)
	site.Member(perm.AccountWriteMembers, perm.AccountReadMembers)
	caller := site.SignedIn(site.Member(perm.ProgrammesRead))
	assistant := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	former := site.Member(perm.AccountAPIAccess)
	open := caller.Get(consent(assistant))
	site.LimitConnectors(workspace.ConnectorPolicy{Permissions: perm.ForConnectors(), Days: 30})
	refused := caller.Get(consent(assistant))
	wants(t, "consent", refused, http.StatusForbidden, "people who manage API access in Riverside Food Bank")
	approved := open.Send("/oauth/authorize", browsertest.Fields{"decision": "approve"})
	if asks(refused) != 1 || asks(approved) != 1 {
		t.Errorf("%d and %d forms, want 1 on each page", asks(refused), asks(approved))
	}
	site.Fixture.Exec(`delete from account.memberships where user_id = $1`, former.ID)
	wants(t, "no recipient", refused.Send(asking, nil), http.StatusOK, "No administrator can be asked")
	manager := site.Member(perm.ProgrammesRead, perm.AccountAPIAccess)
	wants(t, "asked", refused.Send(asking, nil), http.StatusOK, "We asked the administrators")
	if n := site.Count(`select count(*) from account.audit_events where action = $1
		and detail->>'connector_policy' = 'true' and detail->>'recipients' = '1'`, audit.AccessRequested); n != 1 ||
		mails(site) != 1 {
		t.Errorf("%d events, %d mails", n, mails(site))
	}
	page := site.SignedIn(manager).Get(consent(assistant))
	wants(t, "of a user who may change it", page, http.StatusForbidden, "Open the policy")
	if asks(page) != 0 {
		t.Error("a user who can change the policy is told to ask")
	}
}

// If a user has lost the permission for a form, the refusal has a button that asks for the permission.
func TestAsk_RefusedForms(t *testing.T) {
	site := start(t)
	site.Member(perm.AccountWriteMembers, perm.AccountReadMembers)
	for path, form := range map[string]string{
		"/settings/members/invite": "/settings/members/invite",
		"/settings/connectors":     "/settings/connectors/llm",
	} {
		who := site.Member(perm.AccountWriteMembers, perm.AccountReadMembers, perm.AccountAPIAccess)
		page := site.SignedIn(who).Get(path)
		site.Fixture.Exec(`update account.memberships
			set permissions = array_remove(permissions, 'account:write:members') where user_id = $1`, who.ID)
		refused := page.Send(form, nil)
		if refused.Status != http.StatusForbidden || asks(refused) != 1 {
			t.Errorf("%s: %d, %d forms: %s", form, refused.Status, asks(refused), refused.Text())
			continue
		}
		wants(t, form, refused.Send(asking, nil), http.StatusOK, "We asked the administrators")
	}
}

// The mail of a request would name an address that may not be the user's.
func TestProven_UnprovenUserCannotAskForAccess(t *testing.T) {
	t.Parallel()
	site := start(t)
	site.Member(perm.AccountReadMembers, perm.AccountWriteMembers, perm.ProgrammesRead, perm.ProgrammesWrite)
	reader := site.Member(perm.ProgrammesRead)
	site.Fixture.Exec(`update account.users set email_proven_at = null where id = $1`, reader.ID)
	program, _ := site.Fixture.Confidential(perm.ProgrammesRead, perm.ProgrammesWrite)
	asked := site.SignedIn(reader).Get(consent(program)).Send(asking, nil)
	wants(t, "asked", asked, http.StatusForbidden, "Confirm your e-mail address first")
	if n := mails(site); n != 0 {
		t.Errorf("%d mails", n)
	}
}
