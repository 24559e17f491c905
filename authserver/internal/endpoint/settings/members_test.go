package settings_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func memberManager(site *browsertest.Server, more ...perm.Permission) browsertest.Person {
	return site.Member(append(more, perm.AccountReadMembers, perm.AccountWriteMembers, perm.ProgrammesRead)...)
}

// inviteForm returns the filled-in form for an invitation.
func inviteForm(browser *browsertest.Browser, email string, permissions ...string) url.Values {
	form := with(browser.Get(members+"/invite").Form(members+"/invite"), "email", email)
	form["permissions"] = permissions
	return form
}

func invite(browser *browsertest.Browser, email string, permissions ...string) *browsertest.Page {
	return browser.Post(members+"/invite", inviteForm(browser, email, permissions...))
}

func memberPath(site *browsertest.Server, who browsertest.Person) string {
	return members + "/member?tenant=" + site.Fixture.WorkspaceID.String() + "&id=" + who.ID.String()
}

// holds checks the permissions of a user in the fixture's workspace: "" for a user who is not a member.
func holds(t *testing.T, site *browsertest.Server, who browsertest.Person, want string) {
	t.Helper()
	got := ""
	site.Fixture.Read(`select coalesce((select array_to_string(permissions, ' ') from account.memberships
		where user_id = '`+who.ID.String()+`' and tenant_id = '`+site.Fixture.WorkspaceID.String()+`'), '')`, &got)
	if got != want {
		t.Errorf("holds %q, want %q", got, want)
	}
}

func TestMembers_AreListedAndInvited(t *testing.T) {
	site := shared(t)
	browser := site.SignedIn(memberManager(site))
	site.Member(perm.EngageReadForms)
	page := browser.Get(members)
	page.Wants(http.StatusOK, "Riverside Food Bank", "(you)", "See public forms", "Never signed in",
		"No open invitations")
	page = browser.Get(members + "/invite")
	page.Wants(http.StatusOK, "Invite people", "Viewer")
	page.Lacks("Programmes editor", "Forms editor", "Administrator")
	sent := page.Send(members+"/invite", browsertest.Fields{"email": "sam@example.org", "permissions": reading})
	sent.Wants(http.StatusOK, "sam@example.org is invited", "No e-mail was sent.", "Invited by Ada Okafor")
	link := shownLink(t, site, sent)
	browser.Get(members).Says("sam@example.org").Omits("invitation-link")
	again := browser.Get(members).Send(members+"/renew", nil)
	if renewed := shownLink(t, site, again); renewed == link {
		t.Error("the same link again")
	}
	site.Browser().Get(link).Wants(http.StatusNotFound, "This invitation is not valid")
	again.Send(members+"/withdraw", nil).Follow().
		Wants(http.StatusOK, "The invitation was withdrawn.", "No open invitations")
	again.Send(members+"/withdraw", nil).Follow().Wants(http.StatusOK, "already answered or withdrawn")
	again.Send(members+"/renew", nil).Follow().Wants(http.StatusOK, "already sent again, answered or withdrawn")
}

// Without scripts, a role gives its permissions, unless it is the one that the page showed: then the boxes count.
func TestMembers_RolesGivePermissions(t *testing.T) {
	site := shared(t)
	sam := site.Member(perm.ProgrammesRead)
	browser := site.SignedIn(site.Member(perm.FullSet().Without(perm.NewSet(perm.EngageWriteForms))...))
	const reads = "programmes:read:programmes engage:read:forms engage:read:submissions account:read:members"
	for _, c := range []struct {
		preset, permissions, want string
		status                    int
	}{
		{"viewer", "", reads, http.StatusSeeOther},
		{"programmes-editor", "", reading + " " + writing, http.StatusSeeOther},
		{"programmes-editor", writing, writing, http.StatusSeeOther}, // the page showed it
		{membership.Custom, reading, reading, http.StatusSeeOther},
		{"engage-editor", "", reading, http.StatusBadRequest}, // the giver does not hold it
		{"viewer", "", reads, http.StatusSeeOther},
	} {
		form := browser.Get(memberPath(site, sam)).As(c.preset).Form(members + "/permissions")
		form.Set("preset", c.preset)
		if c.permissions != "" {
			form.Set("permissions", c.permissions)
		}
		browser.Post(members+"/permissions", form).As(c.preset).Wants(c.status)
		holds(t, site, sam, c.want)
	}
	browser.Get(memberPath(site, sam)).Keeps(members+"/permissions", "preset", "viewer", "permissions", reads)
	form := with(inviteForm(browser, "kim@example.org"), "preset", "viewer")
	browser.Post(members+"/invite", form).Wants(http.StatusOK, "kim@example.org is invited")
	site.Rows(1, "invitations", `permissions = string_to_array($1, ' ')`, reads)
}

// A reloaded page, a double click and the back button send no second invitation, and a new invitation replaces an open
// one only if the page said so.
func TestMembers_OneFormSendsOneInvitation(t *testing.T) {
	site := shared(t)
	browser := site.SignedIn(memberManager(site))
	form := inviteForm(browser, "sam@example.org", reading)
	link := shownLink(t, site, browser.Post(members+"/invite", form))
	browser.Post(members+"/invite", form).Follow().Wants(http.StatusOK, "The invitation was already sent.",
		"To get a new link, choose “Send again”.")
	valid := func(link string) bool { return site.Browser().Get(link).Status == http.StatusOK }
	if !valid(link) {
		t.Error("the same form sent twice ends the link")
	}
	refused := invite(browser, "sam@example.org", reading)
	refused.Wants(http.StatusConflict, "This address has an open invitation.", "Send a new invitation")
	if !valid(link) {
		t.Error("another form ends the link without a warning")
	}
	replace := func(email string) *browsertest.Page {
		return refused.Send(members+"/invite", browsertest.Fields{"replace": email})
	}
	replace("someone.else@example.org").Wants(http.StatusConflict, "This address has an open invitation.")
	if second := shownLink(t, site, replace("sam@example.org")); valid(link) || !valid(second) {
		t.Error("the new invitation does not replace the open one")
	}
	renewing := browser.Get(members).Form(members + "/renew")
	renewed := shownLink(t, site, browser.Post(members+"/renew", renewing))
	browser.Post(members+"/renew", renewing).Follow().Wants(http.StatusOK, "sent again")
	if !valid(renewed) {
		t.Error("“Send again” sent twice ends the link")
	}
	// The back button, for another person.
	shownLink(t, site, browser.Post(members+"/invite", with(form, "email", "tom@example.org")))
	site.Rows(2, "invitations", `ended_at is null`)
}

// Several people are invited at once, or none of them.
func TestMembers_SeveralAreInvitedTogether(t *testing.T) {
	site := shared(t)
	ada := memberManager(site)
	browser := site.SignedIn(ada)
	shownLink(t, site, invite(browser, "kim@example.org", reading))
	for text, words := range map[string][]string{
		"sam@example.org\ntom at home, x@y@z":      {"Not e-mail addresses: “tom at home”, “x@y@z”."},
		"sam@example.org\nkim@example.org":         {"Already invited: kim@example.org.", "Send a new invitation"},
		"kim@example.org, " + ada.Email:            {"Already members: " + ada.Email, "Already invited: kim"},
		strings.Repeat("sam@example.org, no,", 51): {"Enter at most 50 addresses at once."},
	} {
		page := invite(browser, text, reading).As(text).Says("No invitation was sent.").Says(words...)
		page.Keeps(members+"/invite", "email", strings.TrimSpace(text), "permissions", reading)
	}
	site.Rows(1, "invitations", "")
	form := inviteForm(browser, "sam@example.org, Tom@Example.org", reading)
	form.Add("email", "kim@example.org")
	replaces := browser.Post(members+"/invite", form).Wants(http.StatusConflict, "Already invited: kim@example.org.")
	again := replaces.Form(members + "/invite")
	again.Set("replace", replaces.Attribute("button[name=replace]", "value"))
	sent := browser.Post(members+"/invite", again).Wants(http.StatusOK, "3 people are invited", "tom@example.org")
	link := strings.TrimPrefix(sent.Attribute("#invitation-link-1", "value"), site.URL)
	site.Browser().Get(link).Wants(http.StatusOK, "tom@example.org")
	site.Rows(3, "invitations", "ended_at is null")
	site.Rows(4, "audit_events", "action = $1", audit.InvitationCreated)
	browser.Post(members+"/invite", again).Follow().Says("The invitations were already sent.")
	// The limit of one person is reached within the list: nobody is invited.
	many := ""
	for i := range membership.PerInviter.Most {
		many += strconv.Itoa(i) + "@example.org\n"
	}
	invite(browser, many, reading).Wants(http.StatusTooManyRequests, "No invitation was sent.",
		"The limit was reached at ", "Try again in 24 hours.")
	site.Rows(3, "invitations", "ended_at is null")
}

// shownLink returns the local path of the invitation's link on the page.
func shownLink(t *testing.T, site *browsertest.Server, page *browsertest.Page) string {
	t.Helper()
	path := strings.TrimPrefix(page.Attribute("#invitation-link", "value"), site.URL)
	if !strings.HasPrefix(path, "/invitation?token=alm_inv_") {
		t.Fatalf("no link: %s", page.Text())
	}
	return path
}

func TestMembers_BadInvitationKeepsInput(t *testing.T) {
	site := shared(t)
	ada := memberManager(site)
	browser := site.SignedIn(ada)
	read := []string{string(perm.ProgrammesRead)}
	for name, c := range map[string]struct {
		email       string
		permissions []string
		status      int
		words       string
	}{
		"no address":    {"", read, 400, "Enter an e-mail address"},
		"bad address":   {"sam at home", read, 400, "Enter an e-mail address"},
		"no permission": {"sam@example.org", nil, 400, "Choose at least one permission."},
		"unknown":       {"sam@example.org", []string{"x:y:z"}, 400, "unknown"},
		"not held":      {"sam@example.org", []string{"engage:read:forms"}, 403, "You do not have “See public forms”"},
		"a member":      {ada.Email, read, 409, "A member has this address already."},
	} {
		page := invite(browser, c.email, c.permissions...).As(name)
		page.Wants(c.status, c.words, "The invitation was not sent.").Keeps(members+"/invite", "email", c.email)
	}
	site.Rows(0, "invitations", "")
	// All errors are listed with links to the fields, and the first field has the focus.
	page := invite(browser, "")
	page.Wants(400, "E-mail addresses: Enter an e-mail address", "Permissions: Choose at least one permission.")
	page.Contains(`<a href="#invite-email">`, `<a href="#invite-permissions">`,
		`spellcheck="false" autofocus aria-invalid="true"`)
	page.Times(1, " autofocus")
}

func TestMembers_PermissionsAreChanged(t *testing.T) {
	site := shared(t)
	ada, sam := memberManager(site), site.Member(perm.ProgrammesRead, perm.EngageReadForms)
	browser := site.SignedIn(ada)
	page := browser.Get(memberPath(site, sam))
	page.Wants(http.StatusOK, sam.Email, "Last seen", "See public forms")
	form := page.Form(members + "/permissions")
	page.Keeps(members+"/permissions", "permissions", "programmes:read:programmes engage:read:forms")
	form["permissions"] = []string{"engage:read:forms", "account:read:members"}
	browser.Post(members+"/permissions", form).Follow().Wants(http.StatusOK, "were saved.")
	holds(t, site, sam, "engage:read:forms account:read:members")
	browser.Post(members+"/permissions", form).Wants(http.StatusConflict, "changed after you opened this page")
	form = browser.Get(memberPath(site, sam)).Form(members + "/permissions")
	browser.Post(members+"/permissions", with(form, "permissions", "-")).
		Wants(http.StatusBadRequest, "Choose at least one permission.")
	browser.Post(members+"/permissions", with(form, "permissions", writing)).
		Wants(http.StatusForbidden, "You do not have “Add and change programmes”")
	own := browser.Get(memberPath(site, ada)).Form(members + "/permissions")
	browser.Post(members+"/permissions", with(own, "permissions", "account:read:members")).Wants(http.StatusConflict,
		"the last person with one of these permissions")
	// A member who can only look cannot change anything.
	reader := site.SignedIn(sam)
	reader.Get(members).Wants(http.StatusOK, "People who can manage members can invite others.")
	reader.Get(memberPath(site, ada)).Omits("<fieldset")
	reader.Get(members+"/invite").Wants(http.StatusForbidden, "You cannot manage the members of this workspace",
		"Manage members")
	tried := url.Values{
		"tenant": {site.Fixture.WorkspaceID.String()}, "id": {ada.ID.String()}, "confirm": {"yes"},
		"key": {reader.Get("/settings/user").Form(members + "/leave").Get("key")},
	}
	for _, path := range []string{"/invite", "/renew", "/withdraw", "/permissions", "/remove", "/requests"} {
		reader.Post(members+path, tried).Wants(http.StatusForbidden, "you need the permission “Manage members”")
	}
}

// The page says that the address of a member was never confirmed, and only allows permissions to be removed.
func TestMembers_UnprovenMemberGetsNoFurtherPermission(t *testing.T) {
	site := shared(t)
	ada, sam := memberManager(site), site.Member(perm.ProgrammesRead, perm.EngageReadForms)
	browser := site.SignedIn(ada)
	browser.Get(members).Lacks("Address not confirmed")
	site.Fixture.Exec(`update account.users set email_proven_at = null, email_proven_by = null where id = $1`, sam.ID)
	browser.Get(members).Wants(http.StatusOK, "Address not confirmed")
	page := browser.Get(memberPath(site, sam))
	page.Wants(http.StatusOK, "Address not confirmed", "you can only take permissions away",
		"Ask the person who runs this service to confirm it.")
	form := page.Form(members + "/permissions")
	form["permissions"] = []string{"engage:read:forms", "account:read:members"}
	browser.Post(members+"/permissions", form).Wants(http.StatusConflict, "Nothing was changed.",
		"while the e-mail address is not confirmed")
	browser.Post(members+"/permissions", with(form, "permissions", "engage:read:forms")).Follow().
		Wants(http.StatusOK, "were saved.")
	holds(t, site, sam, "engage:read:forms")
}

func TestMembers_AreRemovedAndLeave(t *testing.T) {
	site := shared(t)
	ada, sam := memberManager(site), site.Member(perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	site.Redeemed(site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead), sam.ID)
	ask := browser.Get(memberPath(site, sam)).Send(members+"/remove", nil)
	ask.Wants(http.StatusOK, "What ends", "loses Claude.")
	ask.Lacks("0 ", "invitation")
	holds(t, site, sam, "programmes:read:programmes") // not removed without confirmation
	ask.Send(members+"/remove", nil).Follow().Wants(http.StatusOK, "was removed. This ended 1 connection")
	holds(t, site, sam, "")
	site.Rows(0, "grants", `state <> 'revoked'`)
	ask.Send(members+"/remove", nil).Follow().Wants(http.StatusOK, "no longer a member")
	browser.Get(memberPath(site, sam)).Wants(http.StatusOK, "Former member")
	// The last holder of a permission cannot leave; another member can, from the page of their own account.
	leave := func(who browsertest.Person, says ...string) *browsertest.Page {
		ask := site.SignedIn(who).Get("/settings/user").Send(members+"/leave", nil)
		return ask.Wants(http.StatusOK, "You lose access immediately.").Says(says...).Send(members+"/leave", nil)
	}
	leave(ada).Wants(http.StatusConflict, "You are the last person in Riverside Food Bank")
	leaver := site.Member(perm.ProgrammesRead)
	site.Redeemed(site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead), leaver.ID)
	leave(leaver, "You lose Claude.", "Claude You Disconnected").Follow().
		Wants(http.StatusOK, "You left Riverside Food Bank.")
	site.Rows(1, "memberships", "")
	browser.Get("/settings/audit").Wants(http.StatusForbidden)
}

// A page shows what a change would do before it is confirmed, in one sentence and with details, and the requests of the
// last 30 days that would have been refused.
func TestMembers_ChangesAreRehearsed(t *testing.T) {
	site := shared(t)
	ada, sam := memberManager(site), site.Member(readAndWrite...)
	browser := site.SignedIn(ada)
	g := site.Redeemed(site.Fixture.Connector(browsertest.Resource, readAndWrite...), sam.ID)
	site.Fixture.Exec(`insert into account.usage (tenant_id, credential_id, day, operation, kind, user_id, requests,
		refused) values ($1, $2, (now() at time zone 'UTC')::date, 'createProgramme', 'connection', $3, 34, 4)`,
		site.Fixture.WorkspaceID, g.ID, sam.ID)
	page := browser.Get(memberPath(site, sam))
	form := with(page.Form(members+"/permissions"), "preset", "", "permissions", "programmes:read:programmes")
	ask := browser.Post(members+"/permissions", form)
	ask.Wants(http.StatusOK, "1 connected app loses permissions; Claude would have been refused 30 times",
		"in the last 30 days.", "Loses: Add and change programmes", "30 requests")
	holds(t, site, sam, "programmes:read:programmes programmes:write:programmes")
	browser.Post(members+"/permissions", ask.Form(members+"/permissions")).Follow().Wants(http.StatusOK, "were saved.")
	holds(t, site, sam, "programmes:read:programmes")
	page.Send(members+"/remove", nil).Wants(http.StatusOK, "loses Claude", "Disconnected").Lacks("refused")
	// A page that cannot find it out says so, and lets the user confirm all the same.
	site.Fixture.Exec(`create function account.slow() returns trigger language plpgsql as
		$$begin raise exception 'canceled' using errcode = 'query_canceled'; end$$`)
	site.Fixture.Exec(fmt.Sprintf(`create trigger slow before delete on account.memberships for each row
		when (old.user_id = '%s') execute function account.slow()`, sam.ID))
	ask = page.Send(members+"/remove", nil).Wants(http.StatusOK, "We could not work out what this would change.")
	ask.Lacks("loses Claude")
	site.Fixture.Exec(`drop trigger slow on account.memberships`)
	ask.Send(members+"/remove", nil).Follow().Wants(http.StatusOK, "Former member")
}

func TestMembers_NeedReadPermissionInTheirWorkspace(t *testing.T) {
	site := shared(t)
	elsewhere := site.Fixture.Workspace("Hillside Youth Club")
	manager := developer(site, perm.ProgrammesRead)
	mixed := site.Member(perm.ProgrammesRead)
	site.Fixture.Join(elsewhere, mixed.ID, perm.AccountReadMembers)
	here := "?tenant=" + site.Fixture.WorkspaceID.String()
	site.SignedIn(manager).Get(members+here).Wants(http.StatusForbidden, "You cannot see the members of this workspace",
		"See members")
	browser := site.SignedIn(mixed)
	browser.Get(members+here).Wants(http.StatusForbidden, "Hillside Youth Club")
	browser.Get(members + "?tenant=" + uuid.NewString()).Wants(http.StatusForbidden)
	browser.Get(members).Wants(http.StatusOK, "Hillside Youth Club")
	// A member of one workspace is not shown through another.
	page := browser.Get(members + "/member?tenant=" + elsewhere.String() + "&id=" + manager.ID.String())
	page.Follow().Wants(http.StatusOK, "no longer a member")
	page.Lacks(manager.Email)
}

func TestMembers_LimitOfInvitationsKeepsInput(t *testing.T) {
	site := shared(t)
	browser := site.SignedIn(memberManager(site))
	again := func() *browsertest.Page {
		form := inviteForm(browser, "sam@example.org", reading)
		return browser.Post(members+"/invite", with(form, "replace", "sam@example.org"))
	}
	for range 5 {
		again().Wants(http.StatusOK, "sam@example.org is invited")
	}
	again().Wants(http.StatusTooManyRequests, "The invitation was not sent.", "5 invitations to this address",
		"Try again in 24 hours.").HasHeader("Retry-After").
		Keeps(members+"/invite", "email", "sam@example.org", "permissions", reading)
	browser.Get(members).Send(members+"/renew", nil).HasHeader("Retry-After").
		Wants(http.StatusTooManyRequests, "The invitation was not sent again, and its link still works.")
}

// enlarge adds 1,000 members, of whom the latest is Person 1000.
func enlarge(site *browsertest.Server) {
	site.Fixture.Exec(`with added as (insert into account.users (id, email, name)
			select gen_random_uuid(), 'person' || n || '-' || $1::uuid || '@example.org', 'Person ' || n || '.'
			from generate_series(1, 1000) n returning id, name)
		insert into account.memberships (tenant_id, user_id, permissions, created_at)
		select $1, id, '{}', now() + interval '1 second' * substr(name, 8)::numeric from added`,
		site.Fixture.WorkspaceID)
}

// The search knows letters without their marks. Who has no two-step sign-in is for those who manage members alone.
func TestMembers_AreSearchedAndFiltered(t *testing.T) {
	site := shared(t)
	browser := site.SignedIn(memberManager(site))
	reader := site.Member(perm.AccountReadMembers)
	names := []string{"Zoë Straße", "Łukasz O'Brien", "أحمد علي"}
	for i, name := range names {
		who := site.Member([]perm.Permission{perm.EngageReadForms, perm.EngageReadForms, perm.ProgrammesRead}[i])
		site.Fixture.Exec(`update account.users set name = $2 where id = $1`, who.ID, name)
		if i == 2 {
			site.Fixture.Exec(`insert into account.authenticators (user_id, secret, last_step)
				values ($1, '\x00', 0)`, who.ID)
		}
	}
	for query, want := range map[string]string{
		"q=zoe": "100", "q=STRASSE": "100", "q=lukasz": "010", "q=Łuk": "010", "q=احمد": "001", "q=nobody": "000",
		"permission=engage:read:forms": "110", "permission=engage:read:forms&q=zoe": "100",
		"two-step=on": "001", "two-step=off": "110", "two-step=on&permission=engage:read:forms": "000",
		"permission=x&two-step=y&page=0": "111",
	} {
		got := ""
		page := browser.Get(members + "?" + query).Wants(http.StatusOK)
		for _, name := range names {
			got += map[bool]string{true: "1", false: "0"}[page.HasText(name)]
		}
		site.Equal(query, got, want)
	}
	browser.Get(members + "?q=zoe").Says("Two-step sign-in is off").Contains(`name="two-step"`)
	hidden := site.SignedIn(reader).Get(members + "?two-step=on&q=o").Says(names[:2]...).Omits(`name="two-step"`)
	hidden.Lacks("Two-step sign-in is off")
}

// A large workspace is never read whole: its latest members come first, and the search asks Postgres.
func TestMembers_OfALargeWorkspaceAreListedLatestFirst(t *testing.T) {
	site := shared(t)
	browser := site.SignedIn(memberManager(site))
	browser.Get(members).Lacks("More than")
	enlarge(site)
	page := browser.Get(members)
	page.Wants(http.StatusOK, "More than 1000", "Person 1000.", "Person 976.", "The latest members come first",
		"1000 of the latest 1000 members have neither")
	page.Lacks("Person 975.", "(you)")
	page = browser.Get(page.Link(members + "?tenant=" + site.Fixture.WorkspaceID.String() + "&before="))
	page.Wants(http.StatusOK, "Person 975.", "Person 951.")
	page.Lacks("Person 976.", "Person 950.")
	page = browser.Get(members + "?q=person+17.")
	page.Wants(http.StatusOK, "Person 17.")
	page.Lacks("Person 18.", "Next")
	browser.Get(members+"?q=nobody").Wants(http.StatusOK, "No member matches")
	// A search that has read many members goes on at the next page.
	site.Fixture.Exec(`with added as (insert into account.users (id, email, name)
			select gen_random_uuid(), 'old' || n || '-' || $1::uuid || '@example.org', 'Old ' || n || '.'
			from generate_series(1, 20000) n returning id)
		insert into account.memberships (tenant_id, user_id, permissions, created_at)
		select $1, id, '{programmes:read:programmes}', now() - interval '1 day' from added`, site.Fixture.WorkspaceID)
	site.Fixture.Exec(`with first as (insert into account.users (id, email, name)
			values (gen_random_uuid(), 'first-' || $1::uuid || '@example.org', 'Żaneta Łuk') returning id)
		insert into account.memberships (tenant_id, user_id, permissions, created_at)
		select $1, id, '{engage:read:forms}', now() - interval '2 days' from first`, site.Fixture.WorkspaceID)
	for _, filter := range []string{"q=zaneta+luk", "permission=engage:read:forms"} {
		page = browser.Get(members + "?" + filter)
		page.Says("No member matches", "Choose Next to search earlier members").Lacks("Żaneta")
		page = browser.Get(page.Link(members + "?tenant=" + site.Fixture.WorkspaceID.String() + "&before="))
		page.Says("Żaneta Łuk").Lacks("Next", "Old 1.")
	}
	browser.Get(members+"?q=person7-"+site.Fixture.WorkspaceID.String()+"@example.org").
		Wants(http.StatusOK, "Person 7.")
	for protected, words := range map[int]string{
		999:  "1 of the latest 1000 members has neither",
		1000: "Each of the latest 1000 members has a passkey",
	} {
		site.Fixture.Exec(`delete from account.authenticators a using account.memberships m
			where m.user_id = a.user_id and m.tenant_id = $1`, site.Fixture.WorkspaceID)
		site.Fixture.Exec(`insert into account.authenticators (user_id, secret, last_step)
			select user_id, '\x00', 0 from account.memberships where tenant_id = $1
			order by created_at desc limit $2`, site.Fixture.WorkspaceID, protected)
		browser.Get(members).Wants(http.StatusOK, words)
	}
}
