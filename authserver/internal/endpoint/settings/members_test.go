package settings_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func memberManager(site *browsertest.Server, more ...perm.Permission) browsertest.Person {
	return site.Member(append(more, perm.AccountReadMembers, perm.AccountWriteMembers, perm.ProgrammesRead)...)
}

func memberPath(site *browsertest.Server, who browsertest.Person) string {
	return members + "/member?tenant=" + site.Fixture.WorkspaceID.String() + "&id=" + who.ID.String()
}

func wantsWords(t *testing.T, page *browsertest.Page, status int, words ...string) {
	t.Helper()
	if page.Status != status {
		t.Errorf("%d, want %d: %s", page.Status, status, page.Text())
	}
	for _, text := range words {
		if !page.HasText(text) {
			t.Errorf("does not say %q: %s", text, page.Text())
		}
	}
}

// heldBy returns the permissions of a user in the fixture's workspace, or "none".
func heldBy(t *testing.T, site *browsertest.Server, who browsertest.Person) string {
	t.Helper()
	held := "none"
	err := site.Fixture.Owner.QueryRow(t.Context(), `select coalesce((select array_to_string(permissions, ' ')
		from account.memberships where user_id = $1 and tenant_id = $2), 'none')`, who.ID, site.Fixture.WorkspaceID).
		Scan(&held)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func TestMembers_AreListedAndInvited(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	browser := site.SignedIn(memberManager(site))
	site.Member(perm.EngageReadForms)
	page := browser.Get(members)
	wantsWords(t, page, http.StatusOK, "Riverside Food Bank", "(you)", "See public forms", "Never signed in",
		"No open invitations")
	page = browser.Get(members + "/invite")
	wantsWords(t, page, http.StatusOK, "Invite a person", "Sees programmes")
	if page.HasText("Runs forms") {
		t.Error("a preset with permissions that the user does not hold is offered")
	}
	form := page.Form(members + "/invite")
	form.Set("email", "sam@example.org")
	form.Set("preset", "sees")
	filled := browser.Post(members+"/invite", form)
	form = filled.Form(members + "/invite")
	if form.Get("email") != "sam@example.org" || form.Get("permissions") != "programmes:read:programmes" ||
		site.Count(`select count(*) from account.invitations`) != 0 {
		t.Errorf("a preset fills the form with %v", form)
	}
	sent := browser.Post(members+"/invite", form)
	wantsWords(t, sent, http.StatusOK, "sam@example.org is invited", "No e-mail was sent.", "Invited by Ada Okafor")
	link := shownLink(t, site, sent)
	if page := browser.Get(members); shown(page, "invitation-link") != "" || !page.HasText("sam@example.org") {
		t.Errorf("the link is shown again, or the invitation is not listed: %s", page.Text())
	}
	again := browser.Post(members+"/renew", browser.Get(members).Form(members+"/renew"))
	if renewed := shownLink(t, site, again); renewed == link {
		t.Error("the same link again")
	}
	wantsWords(t, site.Browser().Get(link), http.StatusNotFound, "This invitation is not valid")
	withdrawn := browser.Post(members+"/withdraw", again.Form(members+"/withdraw"))
	wantsWords(t, withdrawn.Follow(), http.StatusOK, "The invitation was withdrawn.", "No open invitations")
	wantsWords(t, browser.Post(members+"/withdraw", again.Form(members+"/withdraw")).Follow(), http.StatusOK,
		"already answered or withdrawn")
	wantsWords(t, browser.Post(members+"/renew", again.Form(members+"/renew")).Follow(), http.StatusOK,
		"already sent again, answered or withdrawn")
}

// A reloaded page, a double click and the back button send no second invitation, and a new invitation replaces an open
// one only if the page said so.
func TestMembers_OneFormSendsOneInvitation(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	browser := site.SignedIn(memberManager(site))
	form := browser.Get(members + "/invite").Form(members + "/invite")
	form.Set("email", "sam@example.org")
	form.Set("permissions", string(perm.ProgrammesRead))
	link := shownLink(t, site, browser.Post(members+"/invite", form))
	wantsWords(t, browser.Post(members+"/invite", form).Follow(), http.StatusOK, "The invitation was already sent.",
		"To get a new link, choose “Send again”.")
	valid := func(link string) bool { return site.Browser().Get(link).Status == http.StatusOK }
	if !valid(link) {
		t.Error("the same form sent twice ends the link")
	}
	other := browser.Get(members + "/invite").Form(members + "/invite")
	other["email"], other["permissions"] = form["email"], form["permissions"]
	refused := browser.Post(members+"/invite", other)
	wantsWords(t, refused, http.StatusConflict, "This address has an open invitation.", "Send a new invitation")
	if !valid(link) {
		t.Error("another form ends the link without a warning")
	}
	replacing := refused.Form(members + "/invite")
	replacing.Set("replace", "someone.else@example.org")
	wantsWords(t, browser.Post(members+"/invite", replacing), http.StatusConflict,
		"This address has an open invitation.")
	replacing.Set("replace", "sam@example.org")
	if second := shownLink(t, site, browser.Post(members+"/invite", replacing)); valid(link) || !valid(second) {
		t.Error("the new invitation does not replace the open one")
	}
	renewing := browser.Get(members).Form(members + "/renew")
	renewed := shownLink(t, site, browser.Post(members+"/renew", renewing))
	wantsWords(t, browser.Post(members+"/renew", renewing).Follow(), http.StatusOK, "sent again")
	if !valid(renewed) {
		t.Error("“Send again” sent twice ends the link")
	}
	form.Set("email", "tom@example.org") // the back button, for another person
	shownLink(t, site, browser.Post(members+"/invite", form))
	if n := site.Count(`select count(*) from account.invitations where ended_at is null`); n != 2 {
		t.Errorf("%d open invitations, want 2", n)
	}
}

func shown(page *browsertest.Page, id string) string {
	for _, input := range page.Elements("input") {
		if browsertest.Attribute(input, "id") == id {
			return browsertest.Attribute(input, "value")
		}
	}
	return ""
}

// shownLink returns the local path of the invitation's link on the page.
func shownLink(t *testing.T, site *browsertest.Server, page *browsertest.Page) string {
	t.Helper()
	path := strings.TrimPrefix(shown(page, "invitation-link"), site.URL)
	if !strings.HasPrefix(path, "/invitation?token=alm_inv_") {
		t.Fatalf("no link: %s", page.Text())
	}
	return path
}

func TestMembers_BadInvitationKeepsInput(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
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
		form := browser.Get(members + "/invite").Form(members + "/invite")
		form.Set("email", c.email)
		form["permissions"] = c.permissions
		page := browser.Post(members+"/invite", form)
		wantsWords(t, page, c.status, c.words, "The invitation was not sent.")
		if back := page.Form(members + "/invite"); back.Get("email") != c.email {
			t.Errorf("%s: the form came back as %v", name, back)
		}
	}
	if n := site.Count(`select count(*) from account.invitations`); n != 0 {
		t.Errorf("%d invitations", n)
	}
	// All errors are listed with links to the fields, and the first field has the focus.
	form := browser.Get(members + "/invite").Form(members + "/invite")
	form.Del("permissions")
	page := browser.Post(members+"/invite", form)
	wantsWords(t, page, 400, "E-mail address: Enter an e-mail address", "Permissions: Choose at least one permission.")
	if !strings.Contains(page.Body, `<a href="#invite-email">`) ||
		!strings.Contains(page.Body, `<a href="#invite-permissions">`) || strings.Count(page.Body, " autofocus") != 1 ||
		!strings.Contains(page.Body, `spellcheck="false" autofocus aria-invalid="true"`) {
		t.Errorf("%s", page.Body)
	}
}

// A user who may see members but not change them gets no form.
func TestMembers_InvitePageNeedsPermission(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	page := site.SignedIn(site.Member(perm.AccountReadMembers)).Get(members + "/invite")
	wantsWords(t, page, http.StatusForbidden, "You cannot manage the members of this workspace", "Manage members")
}

func TestMembers_PermissionsAreChanged(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada, sam := memberManager(site), site.Member(perm.ProgrammesRead, perm.EngageReadForms)
	browser := site.SignedIn(ada)
	page := browser.Get(memberPath(site, sam))
	wantsWords(t, page, http.StatusOK, sam.Email, "Last seen", "See public forms")
	form := page.Form(members + "/permissions")
	if len(form["permissions"]) != 2 {
		t.Fatalf("%v", form)
	}
	form["permissions"] = []string{"engage:read:forms", "account:read:members"}
	wantsWords(t, browser.Post(members+"/permissions", form).Follow(), http.StatusOK, "were saved.")
	if held := heldBy(t, site, sam); held != "engage:read:forms account:read:members" {
		t.Errorf("holds %s", held)
	}
	wantsWords(t, browser.Post(members+"/permissions", form), http.StatusConflict,
		"changed after you opened this page")
	form = browser.Get(memberPath(site, sam)).Form(members + "/permissions")
	form["permissions"] = nil
	wantsWords(t, browser.Post(members+"/permissions", form), http.StatusBadRequest, "Choose at least one permission.")
	form["permissions"] = []string{"programmes:write:programmes"}
	wantsWords(t, browser.Post(members+"/permissions", form), http.StatusForbidden,
		"You do not have “Add and change programmes”")
	own := browser.Get(memberPath(site, ada)).Form(members + "/permissions")
	own["permissions"] = []string{"account:read:members"}
	wantsWords(t, browser.Post(members+"/permissions", own), http.StatusConflict,
		"the last person with one of these permissions")
	// A member who can only look cannot change anything.
	reader := site.SignedIn(sam)
	wantsWords(t, reader.Get(members), http.StatusOK, "People who can manage members can invite others.")
	look := reader.Get(memberPath(site, ada))
	if len(look.Elements("fieldset")) != 0 {
		t.Error("a form is shown to a user who cannot use it")
	}
	tried := url.Values{
		"tenant": {site.Fixture.WorkspaceID.String()}, "id": {ada.ID.String()}, "confirm": {"yes"},
		"key": {reader.Get("/settings/user").Form(members + "/leave").Get("key")},
	}
	for _, path := range []string{"/invite", "/renew", "/withdraw", "/permissions", "/remove"} {
		wantsWords(t, reader.Post(members+path, tried), http.StatusForbidden, "but not change them")
	}
}

// The page says that the address of a member was never confirmed, and only allows permissions to be removed.
func TestMembers_UnprovenMemberGetsNoFurtherPermission(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada, sam := memberManager(site), site.Member(perm.ProgrammesRead, perm.EngageReadForms)
	browser := site.SignedIn(ada)
	if page := browser.Get(members); page.HasText("Address not confirmed") {
		t.Errorf("of confirmed addresses: %s", page.Text())
	}
	site.Fixture.Exec(`update account.users set email_proven_at = null, email_proven_by = null where id = $1`, sam.ID)
	wantsWords(t, browser.Get(members), http.StatusOK, "Address not confirmed")
	page := browser.Get(memberPath(site, sam))
	wantsWords(t, page, http.StatusOK, "Address not confirmed", "you can only take permissions away",
		"The person who runs this service can confirm it.")
	form := page.Form(members + "/permissions")
	form["permissions"] = []string{"engage:read:forms", "account:read:members"}
	wantsWords(t, browser.Post(members+"/permissions", form), http.StatusConflict, "Nothing was changed.",
		"while the e-mail address is not confirmed")
	form["permissions"] = []string{"engage:read:forms"}
	wantsWords(t, browser.Post(members+"/permissions", form).Follow(), http.StatusOK, "were saved.")
	if held := heldBy(t, site, sam); held != "engage:read:forms" {
		t.Errorf("holds %s", held)
	}
}

func TestMembers_AreRemovedAndLeave(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada, sam := memberManager(site), site.Member(perm.ProgrammesRead)
	browser := site.SignedIn(ada)
	app := site.Fixture.Connector(browsertest.Resource, perm.ProgrammesRead)
	site.Redeemed(app, sam.ID)
	ask := browser.Post(members+"/remove", browser.Get(memberPath(site, sam)).Form(members+"/remove"))
	wantsWords(t, ask, http.StatusOK, "What ends", "Ends: 1 connection.")
	if ask.HasText("0 ") || ask.HasText("Invitations that") {
		t.Errorf("the page lists what does not end: %s", ask.Text())
	}
	if heldBy(t, site, sam) == "none" {
		t.Fatal("removed without confirmation")
	}
	form := ask.Form(members + "/remove")
	wantsWords(t, browser.Post(members+"/remove", form).Follow(), http.StatusOK, "was removed. This ended 1 connection")
	if heldBy(t, site, sam) != "none" ||
		site.Count(`select count(*) from account.grants where state <> 'revoked'`) != 0 {
		t.Error("not removed, or a grant is left")
	}
	wantsWords(t, browser.Post(members+"/remove", form).Follow(), http.StatusOK, "no longer a member")
	wantsWords(t, browser.Get(memberPath(site, sam)).Follow(), http.StatusOK, "no longer a member")
	// The last holder of a permission cannot leave; another member can, from the page of their own account.
	leave := func(who browsertest.Person) *browsertest.Page {
		b := site.SignedIn(who)
		ask := b.Post(members+"/leave", b.Get("/settings/user").Form(members+"/leave"))
		wantsWords(t, ask, http.StatusOK, "You lose access immediately.")
		return b.Post(members+"/leave", ask.Form(members+"/leave"))
	}
	wantsWords(t, leave(ada), http.StatusConflict, "You are the last person in Riverside Food Bank")
	wantsWords(t, leave(site.Member(perm.ProgrammesRead)).Follow(), http.StatusOK, "You left Riverside Food Bank.")
	if n := site.Count(`select count(*) from account.memberships
		where tenant_id = $1`, site.Fixture.WorkspaceID); n != 1 {
		t.Errorf("%d members", n)
	}
	wantsWords(t, browser.Get("/settings/audit"), http.StatusForbidden)
}

func TestMembers_NeedReadPermissionInTheirWorkspace(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	elsewhere := site.Fixture.Workspace("Hillside Youth Club")
	manager := developer(site, perm.ProgrammesRead)
	mixed := site.Member(perm.ProgrammesRead)
	site.Fixture.Join(elsewhere, mixed.ID, perm.AccountReadMembers)
	here := "?tenant=" + site.Fixture.WorkspaceID.String()
	wantsWords(t, site.SignedIn(manager).Get(members+here), http.StatusForbidden,
		"You cannot see the members of this workspace", "See members")
	browser := site.SignedIn(mixed)
	wantsWords(t, browser.Get(members+here), http.StatusForbidden, "Hillside Youth Club")
	wantsWords(t, browser.Get(members+"?tenant="+uuid.NewString()), http.StatusForbidden)
	wantsWords(t, browser.Get(members), http.StatusOK, "Hillside Youth Club")
	// A member of one workspace is not shown through another.
	page := browser.Get(members + "/member?tenant=" + elsewhere.String() + "&id=" + manager.ID.String())
	wantsWords(t, page.Follow(), http.StatusOK, "no longer a member")
	if page.HasText(manager.Email) {
		t.Error("shows a member of another workspace")
	}
}

func TestMembers_LimitOfInvitationsKeepsInput(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	browser := site.SignedIn(memberManager(site))
	invite := func() *browsertest.Page {
		form := browser.Get(members + "/invite").Form(members + "/invite")
		form["email"], form["replace"] = []string{"sam@example.org"}, []string{"sam@example.org"}
		form.Set("permissions", "programmes:read:programmes")
		return browser.Post(members+"/invite", form)
	}
	for range 5 {
		wantsWords(t, invite(), http.StatusOK, "sam@example.org is invited")
	}
	refused := invite()
	wantsWords(t, refused, http.StatusTooManyRequests, "The invitation was not sent.", "5 invitations to this address",
		"Try again in 24 hours.")
	back := refused.Form(members + "/invite")
	if back.Get("email") != "sam@example.org" || back.Get("permissions") != "programmes:read:programmes" ||
		refused.Header.Get("Retry-After") == "" {
		t.Errorf("the form came back as %v, Retry-After %q", back, refused.Header.Get("Retry-After"))
	}
	renewed := browser.Post(members+"/renew", browser.Get(members).Form(members+"/renew"))
	wantsWords(t, renewed, http.StatusTooManyRequests, "The invitation was not sent again, and its link still works.")
	if renewed.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}
