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
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

const asking = "/access-requests"

// offer is in each page that offers to ask.
const offer = `action="` + asking + `"`

// queues makes a service queue mails for a server that does not answer.
func queues(c *app.Config, _ string) {
	c.SMTPURL, c.MailFrom = "smtp://127.0.0.1:1?tls=none", "Almoner <almoner@example.org>"
}

var queuing = testkit.Once(func(t testing.TB) *browsertest.Server { return browsertest.Own(t, queues) })

// sharedWithMail is shared for tests that need a service with mail and do not count mails.
func sharedWithMail(t *testing.T) *browsertest.Server {
	t.Helper()
	t.Parallel()
	return queuing(t).For(t)
}

// consent returns the path of a valid authorization request.
func consent(c client.Client) string { return consentOf(c.ID.String(), c.Redirects[0]) }

func consentOf(client, redirect string) string {
	return "/oauth/authorize?" + url.Values{
		"client_id":             {client},
		"redirect_uri":          {redirect},
		"state":                 {"s"},
		"response_type":         {"code"},
		"resource":              {browsertest.Resource},
		"code_challenge":        {strings.Repeat("a", 43)},
		"code_challenge_method": {"S256"},
	}.Encode()
}

// mails is the query for the mails of a service.
const mails = `select count(*) from account_jobs.river_job`

func TestR2_MemberAsksOnceADay(t *testing.T) {
	site := own(t, queues) // counts the mails of the service
	boss := site.Member(perm.AccountReadMembers, perm.AccountWriteMembers, perm.ProgrammesRead, perm.ProgrammesWrite)
	site.Member(perm.AccountReadMembers, perm.AccountWriteMembers) // cannot give the permission
	reader := site.Member(perm.ProgrammesRead)
	browser := site.SignedIn(reader)
	program, _ := site.Fixture.Confidential(perm.ProgrammesRead, perm.ProgrammesWrite)
	page := browser.Get(consent(program))
	page.As("the page").Wants(http.StatusForbidden, "Ask an administrator")
	page.Send(asking, nil).As("asked").Wants(http.StatusOK, "We asked the administrators")
	site.CountIs(1, mails) // to the member who can give the permission
	page.Send(asking, nil).As("asked twice").Wants(http.StatusOK, "You have already asked")
	browser.Get("/settings/developers").Send(asking, nil).As("for something else").Wants(http.StatusOK,
		"You have already asked")
	site.Rows(1, "audit_events", `user_id = $1 and action = $2 and detail->>'recipients' = '1'
		and detail->>'member' = 'true'`, reader.ID, audit.AccessRequested)
	site.CountIs(1, mails)
	site.Fixture.Exec(`update account.access_requests set asked_at = asked_at - interval '1 day'`)
	page.Send(asking, nil).As("a day later").Wants(http.StatusOK, "We asked the administrators")

	const save = "/settings/members/permissions"
	form := site.SignedIn(boss).Get("/settings/members/member?tenant=" + site.Fixture.WorkspaceID.String() + "&id=" +
		reader.ID.String() + "&asked=1")
	form.As("the administrator's form").Wants(http.StatusOK, "asked for access")
	form.Keeps(save, "permissions", "programmes:read:programmes programmes:write:programmes")
	site.Rows(0, "memberships", `user_id = $1 and 'programmes:write:programmes' = any(permissions)`, reader.ID)
	form.Send(save, nil).Wants(http.StatusSeeOther)
	page.Send(asking, nil).As("given meanwhile").Wants(http.StatusOK, "You have this access now")
}

func TestR2_OthersAreLimitedAndMembersAreNot(t *testing.T) {
	site := sharedWithMail(t)
	boss := site.Member(perm.AccountReadMembers, perm.AccountWriteMembers, perm.ProgrammesRead)
	program, _ := site.Fixture.Confidential(perm.ProgrammesRead)
	stranger := site.Stranger()
	page := site.SignedIn(stranger).Get(consent(program))
	page.As("not a member").Wants(http.StatusForbidden, "You are not a member of this workspace")
	page.Lacks("Riverside Food Bank")
	for range 10 {
		site.Fixture.Exec(`insert into account.access_requests (user_id, tenant_id, permissions, application, member)
			values ($1, $2, '{}', '', false)`, site.Stranger().ID, site.Fixture.WorkspaceID)
	}
	page.Send(asking, nil).As("the eleventh").Wants(http.StatusTooManyRequests, "Too many people have asked today")
	member := site.SignedIn(site.Member(perm.EngageReadForms))
	member.Get(consent(program)).Send(asking, nil).As("a member").Wants(http.StatusOK, "We asked the administrators")
	site.Fixture.Exec(`delete from account.access_requests where not member and tenant_id = $1`,
		site.Fixture.WorkspaceID)
	page.Send(asking, nil).As("asked").Wants(http.StatusOK, "We asked the administrators")
	site.SignedIn(boss).Get("/settings/members?asked="+stranger.ID.String()).Follow().
		Keeps("/settings/members/invite", "email", stranger.Email, "permissions", "programmes:read:programmes")
	reader := site.SignedIn(site.Member(perm.AccountReadMembers))
	reader.Get("/settings/members?asked=" + stranger.ID.String()).Follow().Lacks(stranger.Email)
	unasked := site.Stranger()
	page = site.SignedIn(boss).Get("/settings/members?asked=" + unasked.ID.String()).Follow()
	page.Lacks(unasked.Email)
}

// The list of requests on the page of members: one administrator answers each, once.
func TestR3_RequestsAreAnsweredOnce(t *testing.T) {
	site := sharedWithMail(t)
	const answers = "/settings/members/requests"
	manages := []perm.Permission{perm.AccountReadMembers, perm.AccountWriteMembers, perm.ProgrammesRead}
	boss, other := site.SignedIn(site.Member(manages...)), site.SignedIn(site.Member(manages...))
	asks := func(who browsertest.Person, asked perm.Permission) {
		site.Fixture.Exec(`insert into account.access_requests (user_id, tenant_id, permissions, application, member)
			values ($1, $2, array[$3], 'Donor Desk', false) on conflict (user_id, tenant_id)
			do update set permissions = excluded.permissions, asked_at = clock_timestamp()`,
			who.ID, site.Fixture.WorkspaceID, string(asked))
	}
	page := func(b *browsertest.Browser) *browsertest.Page { return b.Get("/settings/members") }
	page(boss).Lacks("Requests for access")
	sam, kim := site.Member(perm.EngageReadForms), site.Stranger()
	asks(sam, perm.ProgrammesRead)
	stale := page(other).Says("Requests for access", "To connect Donor Desk")
	site.SignedIn(site.Member(perm.AccountReadMembers)).Get("/settings/members").Lacks("Requests for access")
	page(boss).Send(answers, browsertest.Fields{"decision": "perhaps"}).Wants(http.StatusBadRequest, "Choose Approve")
	page(boss).Send(answers, browsertest.Fields{"decision": "approve"}).Follow().Says("The request was approved.").
		Lacks("Requests for access")
	site.Rows(1, "memberships", `user_id = $1
		and permissions @> '{programmes:read:programmes,engage:read:forms}'`, sam.ID)
	stale.Send(answers, browsertest.Fields{"decision": "approve"}).Follow().Says("This request was already answered.")
	stale.Send(answers, browsertest.Fields{"decision": "decline"}).Follow().Says("This request was already answered.")

	asks(sam, perm.ProgrammesWrite) // that the administrator does not hold
	lacks := page(boss).Says("you cannot approve this")
	lacks.Send(answers, browsertest.Fields{"decision": "approve"}).Wants(http.StatusForbidden,
		"You do not have “Add and change programmes”")
	link := "/settings/members/member?tenant=" + site.Fixture.WorkspaceID.String() + "&id=" + sam.ID.String() +
		"&asked=1"
	boss.Get(link).Lacks("no open request")
	lacks.Send(answers, browsertest.Fields{"decision": "decline"}).Follow().Says("The request was declined.").
		Lacks("Requests for access")
	site.Rows(1, "audit_events", `action = $1 and user_id = $2`, audit.AccessDeclined, sam.ID)
	boss.Get(link).Says("no open request for access")
	asks(sam, perm.ProgrammesWrite) // a later request is open again
	page(boss).Says("Requests for access").Send(answers, browsertest.Fields{"decision": "decline"})

	asks(kim, perm.ProgrammesRead)
	page(boss).Says("Not a member yet").Send(answers, browsertest.Fields{"decision": "approve"}).Follow().
		Says("We sent an invitation to " + kim.Email).Lacks("Requests for access")
	site.Rows(1, "invitations", `email = $1 and ended_at is null`, kim.Email)
	asks(kim, perm.ProgrammesRead)
	invite := boss.Get("/settings/members?asked=" + kim.ID.String()).Follow()
	invite.Send("/settings/members/invite", browsertest.Fields{"replace": kim.Email}).Wants(http.StatusSeeOther)
	page(boss).Lacks("Requests for access") // an invitation answers it
}

// Only pages that know the workspace offer the button, so that it does not tell whether a workspace exists.
func TestR1_NoRequestAboutOtherWorkspaces(t *testing.T) {
	site := sharedWithMail(t)
	site.Member(perm.AccountWriteMembers)
	elsewhere := site.Fixture.Workspace("Elsewhere")
	browser := site.SignedIn(site.Member(perm.ProgrammesRead))
	texts := map[string]bool{}
	for _, id := range []uuid.UUID{elsewhere, uuid.New()} {
		page := browser.Get("/settings/members?tenant=" + id.String())
		texts[page.Text()[:200]] = true
		page.Wants(http.StatusForbidden).Omits(offer)
		const callback = "https://app.example.org/callback"
		choice := browser.Get(consentOf(site.Clients.Client("/oauth/client", nil, callback), callback))
		choice.Send("/oauth/authorize/workspace", browsertest.Fields{"workspace": id.String(), "decision": "choose"}).
			Wants(http.StatusForbidden, "You are not a member of the chosen workspace").Omits(offer)
	}
	site.Equal("different pages about unknown and other workspaces", len(texts), 1)
	browser.Get("/settings/members").As("the own workspace").Times(1, offer)
}

func TestR1_TicketIsBoundToSignIn(t *testing.T) {
	site := own(t, queues) // counts the mails of the service
	site.Member(perm.AccountWriteMembers, perm.AccountReadMembers)
	ada, eve := site.SignedIn(site.Member(perm.ProgrammesRead)), site.SignedIn(site.Member(perm.ProgrammesRead))
	page := ada.Get("/settings/members")
	form := page.Form(asking)
	letter := "x"
	if form.Get("ticket")[20:21] == letter {
		letter = "y"
	}
	forged := url.Values{"ticket": {form.Get("ticket")[:20] + letter + form.Get("ticket")[21:]}}
	eve.Post(asking, form).As("another user").Wants(http.StatusForbidden, "out of date")
	site.Browser().Post(asking, form).As("signed out").Wants(http.StatusForbidden, "out of date")
	ada.Post(asking, forged).As("altered").Wants(http.StatusForbidden, "out of date")
	ada.Post(asking, url.Values{}).As("no ticket").Wants(http.StatusForbidden, "out of date")
	ada.Headers.Set("Sec-Fetch-Site", "cross-site")
	ada.Post(asking, form).As("another site").Wants(http.StatusForbidden)
	ada.Headers = http.Header{}
	site.CountIs(0, mails)
	ada.Post(asking, form).As("valid").Wants(http.StatusOK, "We asked the administrators")
	hers := eve.Get("/settings/members").Form(asking)
	site.Fixture.Exec(`update account.users set disabled_at = now() where email like 'person%'
		and id in (select user_id from account.memberships where 'account:write:members' = any(permissions))`)
	eve.Post(asking, hers).As("no administrator").Wants(http.StatusOK, "We could not ask an administrator")
	page = eve.Get("/settings/members").As("no administrator")
	page.Wants(http.StatusForbidden, "No other member of Riverside Food Bank can do this.").Omits(offer)
	page.Lacks("An administrator of the workspace can give it to you.")
}

func TestAsk_LLMIntegration(t *testing.T) {
	site := own(t, queues) // counts the mails of the service
	site.Member(perm.AccountAPIAccess, perm.AccountWriteMembers)
	site.Fixture.SetLLM(false)
	caller := site.SignedIn(site.Member(perm.AccountAPIAccess, perm.ProgrammesRead))
	assistant := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	refused := caller.Get(consent(assistant))
	refused.Wants(http.StatusForbidden, "AI assistants are switched off").Times(1, offer)
	caller.Get("/settings/connectors").Times(1, offer)
	answer := refused.Send(asking, nil).Wants(http.StatusOK, "We asked the administrators")
	site.Equal("the page leads back to", answer.Link("/oauth/authorize?"), consent(assistant))
	site.Rows(1, "audit_events", `action = $1 and detail->>'llm_integration' = 'true'`, audit.AccessRequested)
	site.CountIs(1, mails)
}

func TestAsk_WithoutMailPageNamesManagers(t *testing.T) {
	site := shared(t)
	boss := site.Member(perm.AccountReadMembers, perm.AccountWriteMembers, perm.ProgrammesWrite, perm.ProgrammesRead)
	program, _ := site.Fixture.Confidential(perm.ProgrammesRead, perm.ProgrammesWrite)
	refused := func(who browsertest.Person) *browsertest.Page {
		return site.SignedIn(who).Get(consent(program)).Wants(http.StatusForbidden, "dministrator of").Omits(offer)
	}
	refused(site.Member(perm.ProgrammesRead, perm.AccountReadMembers)).Says(boss.Email)
	refused(site.Member(perm.ProgrammesRead)).As("does not see members").Lacks(boss.Email)
	refused(site.Stranger()).As("not a member").Lacks(boss.Email)
}

// The members who can change the policy get the mail. Those who only manage members do not.
func TestAsk_ConnectorPolicy(t *testing.T) {
	site := own(t, queues) // counts the mails of the service
	site.Member(perm.AccountWriteMembers, perm.AccountReadMembers)
	caller := site.SignedIn(site.Member(perm.ProgrammesRead))
	assistant := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	former := site.Member(perm.AccountAPIAccess)
	open := caller.Get(consent(assistant))
	site.LimitConnectors(workspace.ConnectorPolicy{Permissions: perm.ForConnectors(), Days: 30})
	refused := caller.Get(consent(assistant))
	refused.Wants(http.StatusForbidden, "people who manage API access in Riverside Food Bank").Times(1, offer)
	open.Send("/oauth/authorize", browsertest.Fields{"decision": "approve"}).Times(1, offer)
	site.Fixture.Exec(`delete from account.memberships where user_id = $1`, former.ID)
	refused.Send(asking, nil).As("no recipient").Wants(http.StatusOK, "We could not ask an administrator")
	manager := site.Member(perm.ProgrammesRead, perm.AccountAPIAccess)
	refused.Send(asking, nil).As("asked").Wants(http.StatusOK, "We asked the administrators")
	site.Rows(1, "audit_events", `action = $1 and detail->>'connector_policy' = 'true'
		and detail->>'recipients' = '1'`, audit.AccessRequested)
	site.CountIs(1, mails)
	site.SignedIn(manager).Get(consent(assistant)).As("of a user who may change it").
		Wants(http.StatusForbidden, "Open the assistant rules").Omits(offer)
}

// If a user has lost the permission for a form, the refusal has a button that asks for the permission.
func TestAsk_RefusedForms(t *testing.T) {
	site := sharedWithMail(t)
	site.Member(perm.AccountWriteMembers, perm.AccountReadMembers)
	for path, form := range map[string]string{
		"/settings/members/invite": "/settings/members/invite",
		"/settings/connectors":     "/settings/connectors/llm",
	} {
		who := site.Member(perm.AccountWriteMembers, perm.AccountReadMembers, perm.AccountAPIAccess)
		page := site.SignedIn(who).Get(path)
		site.Fixture.Exec(`update account.memberships
			set permissions = array_remove(permissions, 'account:write:members') where user_id = $1`, who.ID)
		refused := page.Send(form, nil).Wants(http.StatusForbidden).Times(1, offer)
		refused.Send(asking, nil).As(form).Wants(http.StatusOK, "We asked the administrators")
	}
}

// The mail of a request would name an address that may not be the user's.
func TestProven_UnprovenUserCannotAskForAccess(t *testing.T) {
	site := own(t, queues) // counts the mails of the service
	site.Member(perm.AccountReadMembers, perm.AccountWriteMembers, perm.ProgrammesRead, perm.ProgrammesWrite)
	reader := site.Member(perm.ProgrammesRead)
	site.Fixture.Exec(`update account.users set email_proven_at = null where id = $1`, reader.ID)
	program, _ := site.Fixture.Confidential(perm.ProgrammesRead, perm.ProgrammesWrite)
	site.SignedIn(reader).Get(consent(program)).Send(asking, nil).As("asked").Wants(http.StatusForbidden,
		"Confirm your e-mail address first")
	site.CountIs(0, mails)
}
