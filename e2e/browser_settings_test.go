package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/mailbox"
)

// A settingsTour uses the settings of one installation in one browser.
type settingsTour struct {
	*testing.T
	Browser
	p   *harness.Product
	box *mailbox.Mailbox
	ws  harness.TestWorkspace
}

// TestBrowser_Settings uses each form of the settings that no other test uses in a browser. Those of passkeys are in
// app.TestChromium_Passkeys and app.TestChromium_InvitationWithPasskey.
func TestBrowser_Settings(t *testing.T) {
	p, ws, box := withMail(t)
	tour := &settingsTour{t, newBrowser(t, p, harness.Laptop), p, box, ws}
	member := tour.ws.Member(t, harness.ReadProgrammes)
	tour.ws.Connector(t, harness.ReadProgrammes).Connect(t, p.Person(t, member))

	tour.OpenAs(tour.ws.Owner, p.AppURL+"/settings/connectors?tenant="+tour.ws.Workspace.ID)
	tour.See("#connections")
	tour.endsConnectionAndSwitchesLLM(member)
	tour.changesPermissionsAndWithdrawsInvitation(member)
	tour.changesNameMailsAndPassword()
	tour.leavesWorkspace(member)
	sound(t, "settings", tour.Browser)
}

// sends presses the button of a form, and waits for the notice of the next page.
func (v *settingsTour) sends(action string, words ...string) {
	v.Helper()
	harness.Evaluate[bool](v.Browser, `(document.body.dataset.sent = "yes") === "yes"`)
	v.ClickAndSee(`form[action="`+action+`"] button[type=submit]`, "body:not([data-sent]) .alert-good")
	wantsText(v.T, action, v.Browser, words...)
}

// wants fails unless exactly one row matches the query.
func (v *settingsTour) wants(what, query string, args ...any) {
	v.Helper()
	if n := v.p.Database.Count(v.T, query, args...); n != 1 {
		v.Errorf("%s: %d rows, want 1", what, n)
	}
}

func (v *settingsTour) endsConnectionAndSwitchesLLM(member demo.User) {
	v.Helper()
	v.Click("#connections ~ form summary")
	wantsText(v.T, "the connections", v.Browser, member.Email)
	v.Click("#connections ~ form .confirm summary")
	v.sends("/settings/connectors/disconnect", "was disconnected from the account of", "No connected apps")
	v.wants("ended", `select count(*) from account.grants where user_id = $1 and state = 'revoked'`, member.ID)
	const form = "/settings/connectors/llm"
	v.ClickAndSee(`form[action="`+form+`"] button`, "#llm-off")
	v.sends(form, "are now switched off", "are switched off")
	v.sends(form, "are now switched on")
}

func (v *settingsTour) changesNameMailsAndPassword() {
	v.Helper()
	v.Open(v.p.AppURL + "/settings/user")
	v.ClickAndSee("#workspaces ~ .rows summary", `input[readonly][value="`+v.ws.Workspace.ID+`"]`)
	v.Click("#you ~ .rows summary")
	harness.Evaluate[bool](v.Browser, `!(document.getElementById("name").value = "")`)
	v.Fill("#name", "Morgan Reed")
	v.sends("/settings/user/name", "Morgan Reed")
	v.wants("name", `select count(*) from account.users where id = $1 and name = 'Morgan Reed'`, v.ws.Owner.ID)

	v.Open(v.p.AppURL + "/settings/security")
	const box = `input[name=mail][value=token_expiring]`
	v.Click("#mails summary")
	v.See(box + ":checked")
	v.Click(box)
	v.sends("/settings/security/mails")
	v.See(box + ":not(:checked)")
	v.wants("unwanted", `select count(*) from account.unwanted_mails where user_id = $1`, v.ws.Owner.ID)

	const chosen = "tide lantern quarry"
	met.Add("password", chosen)
	v.Open(v.p.AppURL + "/settings/security/password")
	v.Fill("#password", v.ws.Owner.Password)
	v.Fill("#new-password", chosen)
	v.sends("/settings/security/password")
	v.leaves()
	v.Browser.SignIn(v.ws.Owner.Email, chosen)
	v.See("#workspaces")
	v.leaves()
}

// leaves signs out.
func (v *settingsTour) leaves() {
	v.Helper()
	v.ClickAndSee(`form[action="/logout"] button`, "#email")
}

func (v *settingsTour) changesPermissionsAndWithdrawsInvitation(member demo.User) {
	v.Helper()
	v.Open(v.p.AppURL + "/settings/members/member?tenant=" + v.ws.Workspace.ID + "&id=" + member.ID)
	v.Click(`input[name=permissions][value="` + harness.WriteProgrammes + `"]`)
	v.sends("/settings/members/permissions")
	v.wants("permissions", `select count(*) from account.memberships where user_id = $1 and $2 = any (permissions)`,
		member.ID, harness.WriteProgrammes)

	address := "invited." + v.ws.Owner.ID + "@example.org" // no other test uses it
	v.p.As(v.ws.Token).JSON(v.T, http.MethodPost, "/v1/account/tenants/"+v.ws.Workspace.ID+"/invitations",
		map[string]any{"email": address, "permissions": []string{harness.ReadProgrammes}}).
		Wants(v.T, http.StatusCreated)
	v.Open(v.p.AppURL + "/settings/members?tenant=" + v.ws.Workspace.ID)
	v.sends("/settings/members/renew", "We sent an invitation to "+address)
	mail := mailTo(v.T, v.box, address, "Invitation to "+v.ws.Workspace.Name)
	_, token, _ := strings.Cut(linkIn(v.T, mail, v.p.AppURL+"/invitation?token="), "token=")
	met.Add("invitation token", token)
	v.sends("/settings/members/withdraw")
	v.wants("withdrawn", `select count(*) from account.invitations where email = $1 and outcome = 'withdrawn'`, address)
}

func (v *settingsTour) leavesWorkspace(member demo.User) {
	v.Helper()
	v.Browser.SignIn(member.Email, member.Password)
	const leave = `form[action="/settings/members/leave"] button`
	v.ClickAndSee("#workspaces ~ .rows summary", leave)
	v.Click(leave)
	v.ClickAndSee(`input[name=confirm] ~ button`, ".alert-good")
	v.wants("left", `select count(*) from account.users u where u.id = $1
		and not exists (select from account.memberships where user_id = u.id)`, member.ID)
}

// However many tokens, sign-ins and events a person has, the page is short on a phone, and links to them.
func TestBrowser_SecurityIsShortOnPhone(t *testing.T) {
	p, ws := inWorkspace(t)
	user := ws.Owner
	p.Database.Exec(t, `insert into account.personal_access_tokens
			(id, hash, user_id, tenant_id, name, permissions, expires_at)
		select gen_random_uuid(), sha256(n::text::bytea || uuid_send($1)), $1, $2, 'Export ' || n,
			'{programmes:read:programmes}', now() + interval '9 days'
		from generate_series(1, 66) n`, user.ID, ws.Workspace.ID)
	p.Database.Exec(t, `insert into account.sign_ins (id, user_id, expires_at, method, address, user_agent)
		select gen_random_uuid(), $1, now() + interval '1 hour', 'password', '2001:db8:85a3:8d3:1319:8a2e:370:' || n,
			'Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/126.0 Safari/537.36 Edg/126.0'
		from generate_series(1, 40) n`, user.ID)
	p.Database.Exec(t, `insert into account.audit_events
			(id, tenant_id, user_id, actor, action, subject, detail, request_id)
		select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', $1, 'user:' || $1::uuid,
			(array['user.renamed', 'user.password_reset', 'user.password_set'])[1 + n % 3], 'x', '{}', ''
		from generate_series(1, 60) n`, user.ID)
	phone := newBrowser(t, p, harness.Telephone)
	phone.OpenAs(user, p.AppURL+"/settings/security")
	phone.See("#sessions")
	if high := harness.Evaluate[int](phone, `document.documentElement.scrollHeight`); high > 1600 {
		t.Errorf("the page is %d pixels high", high)
	}
	for _, list := range []string{"sessions", "events", "tokens"} {
		phone.Open(p.AppURL + "/settings/security")
		phone.ClickAndSee(`a[href="/settings/security/`+list+`"]`, ".crumb")
		looks(t, list, phone)
	}
	silent(t, phone)
}
