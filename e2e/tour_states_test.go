package e2e

import (
	"net/http"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Pages of the tour in states that a workspace reaches with time: requests that were answered, requests for access,
// confirmations, and invitations that were used.

// statePages opens them. It signs out the user of the open page.
func statePages(i *inspector, p *harness.Product) {
	i.t.Helper()
	ws := p.NewWorkspace(i.t)
	answeredPages(i, p, ws)
	askedPages(i, p, ws)
	confirmations(i, p, ws)
	invitationPages(i, p, ws)
	wrongPasswords(i, p)
}

// as signs the user of the open page out and another one in.
func (i *inspector) as(email, password, address string) {
	i.t.Helper()
	i.ClickAndSee(`form[action="/logout"] button`, "#email")
	i.SignIn(email, password)
	i.See("#workspaces")
	i.Open(address)
}

// answeredPages opens a consent page that leaves permissions out, the ones of a request that was approved and of one
// that is finished, and Connected apps after the connection ended because a token was used twice.
func answeredPages(i *inspector, p *harness.Product, ws harness.TestWorkspace) {
	i.t.Helper()
	reader := ws.Member(i.t, harness.ReadProgrammes)
	wide := ws.Connector(i.t, harness.ReadProgrammes, harness.WriteProgrammes).Begin().Query
	i.as(reader.Email, reader.Password, p.AuthorizeURL(wide))
	i.See(askButton)
	i.look("consent, narrower than asked")
	i.after(askButton, `a[href^="/oauth/authorize?"]`, "an administrator was asked")
	landing := newLanding(i.t)
	connector := connectorAt(i.t, p, ws, landing, "/v1", harness.ReadProgrammes)
	attempt := connector.Begin()
	i.OpenAndSee(attempt.URL(), approveButton)
	i.ClickAndSee(approveButton, "#landed")
	code := landing.wait(i.t).Get("code")
	met.Add("code", code)
	i.OpenAndSee(attempt.URL(), ".alert-good")
	i.look("consent, approved already")
	tokens := connector.Post(i.t, attempt.CodeForm(code)).Tokens(i.t)
	i.Open(attempt.URL())
	i.look("consent, finished")
	for range 2 {
		connector.Refresh(i.t, tokens.RefreshToken)
	}
	i.OpenAndSee(p.AppURL+"/settings/apps", "#ended")
	i.look("connected apps, one of them ended for safety")
	i.Click("#ended ~ .rows a")
	i.See("#about")
	i.look("a connection that ended for safety")
}

// askedPages opens the members of a workspace in which a member and a person who is none asked for access.
func askedPages(i *inspector, p *harness.Product, ws harness.TestWorkspace) {
	i.t.Helper()
	stranger := p.Person(i.t, p.Database.User(i.t))
	refused := stranger.Arrive(i.t, ws.Connector(i.t, harness.ReadProgrammes).Begin().URL())
	stranger.Submit(i.t, refused.FormWith(i.t, "form.ask button")).Wants(i.t, http.StatusOK)
	i.Open(p.AppURL + "/settings/apps")
	i.as(ws.Owner.Email, ws.Owner.Password, p.AppURL+"/settings/members?tenant="+ws.Workspace.ID)
	i.See("#requests")
	i.look("members, two requests for access")
	i.after(`a[href$="asked=1"]`, `.alert-warn[role="status"]`, "a member who asked for access")
	i.Open(p.AppURL + "/settings/members?tenant=" + ws.Workspace.ID)
	i.after(`a[href*="asked="]:not([href$="asked=1"])`, "#invite-email", "an invitation for a person who asked")
}

// confirmations opens the questions before permissions, the assistant rules and the switch are changed.
func confirmations(i *inspector, p *harness.Product, ws harness.TestWorkspace) {
	i.t.Helper()
	here := "?tenant=" + ws.Workspace.ID
	editor := ws.Member(i.t, harness.Everything()...)
	ws.Connector(i.t, harness.ReadProgrammes, harness.WriteProgrammes).Connect(i.t, p.Person(i.t, editor))
	i.Open(p.AppURL + "/settings/members/member" + here + "&id=" + editor.ID)
	i.Click("input[name=preset][value=viewer]")
	i.after(`form[action="/settings/members/permissions"] .button-main`, "#warning", "permissions that end something")
	i.Open(p.AppURL + "/settings/connectors" + here)
	i.Click(`section[aria-labelledby="policy"] .fold > summary`)
	i.Click(`form[action="/settings/connectors/policy"] input[value="` + harness.WriteProgrammes + `"]`)
	i.after(`form[action="/settings/connectors/policy"] .button-main`, "#warning", "assistant rules that end something")
	i.Open(p.AppURL + "/settings/connectors" + here)
	i.after(`form[action="/settings/connectors/llm"] button`, "#llm-off", "assistants before they are switched off")
}

// invitationPages accepts an invitation, and opens its link again, signed in and signed out.
func invitationPages(i *inspector, p *harness.Product, ws harness.TestWorkspace) {
	i.t.Helper()
	guest := p.Database.User(i.t)
	to := links(i.t, p, ws, guest, guest.Email)
	i.as(guest.Email, guest.Password, to.invitation)
	i.See("button[value=accept]")
	i.look("invitation of a person with an account")
	i.after("button[value=accept]", ".alert-good", "after joining")
	i.Open(to.invitation)
	i.look("used invitation")
	i.Open(p.AppURL + "/settings/user")
	i.ClickAndSee(`form[action="/logout"] button`, "#email")
	i.Open(to.invitation)
	i.look("used invitation, signed out")
}

// wrongPasswords opens the sign-in page that a user sees after too many wrong passwords.
func wrongPasswords(i *inspector, p *harness.Product) {
	i.t.Helper()
	user := p.Database.User(i.t)
	user.Password = "not the password"
	wrong := p.Person(i.t, user)
	for range 10 {
		wrong.SignIn(i.t, wrong.Open(i.t, p.AppURL+"/login"))
	}
	i.Open(p.AppURL + "/login")
	i.SubmitSignIn(user.Email, user.Password)
	i.See("#problem")
	i.look("sign-in, too many wrong passwords")
}
