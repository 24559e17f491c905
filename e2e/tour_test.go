package e2e

import (
	"crypto/sha256"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// The tour opens each page, for axe-core and for pictures (browser_axe_test.go).

// A linked holds addresses of pages that need a secret.
type linked struct{ reset, invitation, emailOld, emailNew string }

// links stores links to set a password and to change the address of a user, and invites an address.
func links(t *testing.T, p *harness.Product, ws harness.TestWorkspace, user demo.User, invited string) linked {
	t.Helper()
	secret := uuid.NewString()
	met.Add("link", secret)
	reset := sha256.Sum256([]byte("password reset\x00" + secret))
	p.Database.Exec(t, `insert into account.password_resets (token_hash, user_id, expires_at)
		values ($1, $2, now() + interval '1 hour')`, reset[:], user.ID)
	old, _ := credential.EmailChange.New(strings.NewReader(strings.Repeat(secret, 9)))
	to, _ := credential.EmailChange.New(strings.NewReader(strings.Repeat(uuid.NewString(), 9)))
	met.Add("link", old.Reveal())
	met.Add("link", to.Reveal())
	p.Database.Exec(t, `insert into account.email_changes (id, user_id, old_email, new_email, old_token_hash,
		new_token_hash, expires_at) select gen_random_uuid(), id, email, 'new@example.org', $2, $3,
		now() + interval '1 day' from account.users where id = $1`, user.ID, credential.Hash(old.Reveal()),
		credential.Hash(to.Reveal()))
	token, _ := credential.Invitation.New(strings.NewReader(strings.Repeat(uuid.NewString(), 9)))
	met.Add("invitation token", token.Reveal())
	p.Database.Exec(t, `insert into account.invitations (id, tenant_id, email, permissions, invited_by, token_hash,
		expires_at) values (gen_random_uuid(), $1, $2, $3, $4, $5, now() + interval '1 day')`, ws.Workspace.ID, invited,
		[]string{harness.ReadProgrammes}, ws.Owner.ID, credential.Hash(token.Reveal()))
	return linked{
		reset:      p.AppURL + "/login/reset?token=" + secret,
		invitation: p.AppURL + "/invitation?token=" + token.Reveal(),
		emailOld:   p.AppURL + "/email?token=" + old.Reveal(),
		emailNew:   p.AppURL + "/email?token=" + to.Reveal(),
	}
}

// tour inspects every page in these views.
func tour(t *testing.T, in []view, inspect func(i *inspector, page string, v view)) *inspector {
	t.Helper()
	site := harness.NewMetadataHost(t)
	riverside := newProvider(t)
	settings := riverside.settings()
	maps.Copy(settings, site.Settings("claude"))
	s := harness.Private(t, harness.Options{Mailbox: true, Settings: settings})
	p := harness.NewProduct(t, s, &met)
	ws := p.NewWorkspace(t)
	user := ws.Member(t, harness.Everything()...)
	p.Database.Join(t, p.Demo.Workspaces.Empty, user, harness.ReadProgrammes)
	to := links(t, p, ws, user, "sam@example.org")
	p.Database.Token(t, ws.Workspace, user, harness.ReadProgrammes)
	ws.Connector(t, harness.ReadProgrammes).Connect(t, p.Person(t, user))
	ws.Confidential(t, "", harness.ReadProgrammes).Connect(t, p.Person(t, user))
	long := harness.ConfidentialBody(harness.ReadProgrammes)
	long["name"] = strings.Repeat("Wm", 34) // as one word
	ws.Register(t, long).Wants(t, http.StatusCreated)
	i := &inspector{
		Browser: newBrowser(t, p, harness.Laptop),
		t:       t,
		seen:    map[string]bool{},
		views:   in,
		inspect: inspect,
	}
	began := time.Now()
	i.findsViolations(p)
	signedOutPages(i, p, to)
	takeoverPage(i, p, riverside)
	consentPages(i, p, site, ws, user)
	settingsPages(i, p, ws, user, to)
	mailPages(i, s.Mailbox(), user)
	form := p.BaseURL + "/v1/engage/public/forms/" + p.Demo.Engage.EmbedKey + "/embed"
	i.at(form)
	i.after("button[type=submit]", ".alert", "the form with errors")
	i.at(p.BaseURL + "/v1/engage/public/forms/alm_embed_unknown/embed")
	formPages(i, p, ws)
	for _, page := range []string{"/", "/v1/nothing", "/v1/docs", "/v1/docs/forms"} {
		i.at(p.BaseURL + page)
	}
	harness.Evaluate[bool](i.Browser, `[...document.querySelectorAll(".filter input")].every(input => {
		input.value = "submission";
		return input.dispatchEvent(new Event("input"));
	})`)
	i.look("docs, a search")
	t.Logf("%d pages in %s", i.pages, time.Since(began).Round(time.Second))
	return i
}

func signedOutPages(i *inspector, p *harness.Product, to linked) {
	i.t.Helper()
	for _, page := range []string{
		p.AppURL + "/login", p.AppURL + "/login?password-set=1", p.AppURL + "/login/forgotten",
		p.AppURL + "/login/forgotten?requested=1", to.reset, p.AppURL + "/login/reset", to.invitation,
		p.AppURL + "/invitation", to.emailOld, to.emailNew, p.AppURL + "/nothing", p.AppURL + "/settings/user/name",
		p.AppURL + "/oauth/authorize?client_id=x",
	} {
		i.at(page)
	}
	i.Open(p.AppURL + "/login/forgotten")
	i.after("button[type=submit]", "#email-note", "forgotten, without an address")
}

// takeoverPage signs in with the identity provider as a user whose address was never confirmed.
func takeoverPage(i *inspector, p *harness.Product, riverside *provider) {
	i.t.Helper()
	user := p.Database.User(i.t)
	p.Database.Exec(i.t,
		`update account.users set email_proven_at = null, email_proven_by = null where id = $1`, user.ID)
	riverside.email = user.Email
	i.Open(p.AppURL + "/login")
	i.after(`a[href^="/login/upstream"]`, `form[action="/login/upstream/confirm"]`, "confirmation of an e-mail address")
}

// consentPages signs in while it opens the pages.
func consentPages(
	i *inspector, p *harness.Product, site *harness.MetadataHost, ws harness.TestWorkspace, user demo.User,
) {
	i.t.Helper()
	i.Open(p.AuthorizeURL(ws.Connector(i.t, harness.ReadProgrammes, harness.WriteProgrammes).Begin().Query))
	i.SubmitSignIn(user.Email, "")
	i.See("#password-note")
	i.look("sign-in, without a password")
	i.Fill("#password", user.Password)
	i.Press(EnterKey)
	i.See(approveButton)
	i.look("consent")
	i.Click("input[name=access][value=read]")
	i.look("consent, read only")
	document := site.Client("/oauth/axe", []string{"http://127.0.0.1/callback"}, nil)
	landing := newLanding(i.t)
	i.Open(p.AuthorizeURL(p.DocumentClient(document, landing.uri, p.BaseURL+"/mcp").Begin().Query))
	i.See("input[name=workspace]")
	i.look("choice of a workspace")
	i.Click(`input[name=workspace][value="` + ws.Workspace.ID + `"]`)
	i.Press(EnterKey)
	i.See(approveButton)
	i.look("consent, of an application on the user's own computer")
	elsewhere := p.NewWorkspace(i.t)
	i.Open(p.AuthorizeURL(elsewhere.Connector(i.t, harness.ReadProgrammes).Begin().Query))
	i.look("refusal: no member")
	p.Database.SetLLM(i.t, p.Demo.Workspaces.Empty, true)
	off := p.NewWorkspace(i.t)
	p.Database.Join(i.t, off.Workspace, user, harness.ReadProgrammes)
	application := off.Connector(i.t, harness.ReadProgrammes)
	p.Database.SetLLM(i.t, off.Workspace, false)
	i.Open(p.AuthorizeURL(application.Begin().Query))
	i.look("refusal: LLM integration off")
	i.OpenAndSee(p.AuthorizeURL(p.DocumentClient(document, landing.uri, p.BaseURL+"/mcp").Begin().Query), ".box-closed")
	i.look("choice of a workspace, one of them closed")
}

func settingsPages(i *inspector, p *harness.Product, ws harness.TestWorkspace, user demo.User, to linked) {
	i.t.Helper()
	here := "?tenant=" + ws.Workspace.ID
	for _, page := range []string{
		"/settings/user", "/settings/user/email", "/settings/user/delete", "/settings/members" + here,
		"/settings/members/invite" + here, "/settings/members/member" + here + "&id=" + user.ID,
		"/settings/members/member" + here + "&id=" + ws.Owner.ID, "/settings/developers" + here,
		"/settings/developers/new" + here, "/settings/applications" + here, "/settings/applications/new" + here,
		"/settings/webhooks" + here, "/settings/webhooks/new" + here, "/settings/developers?tenant=x",
		"/settings/connectors" + here, "/settings/connectors/log" + here, "/settings/apps", "/settings/connect",
		"/settings/security", "/settings/security/sessions", "/settings/security/events", "/settings/security/tokens",
		"/settings/welcome" + here, "/settings/security/password", "/settings/security/authenticator",
		"/settings/passkeys",
		"/settings/provider", "/settings/audit" + here, "/login/again",
	} {
		i.at(p.AppURL + page)
	}
	i.at(to.invitation)
	i.Open(p.AppURL + "/settings/members/member" + here + "&id=" + ws.Owner.ID)
	i.after(`form[action="/settings/members/remove"] button`, "input[name=confirm] ~ button", "removal of a member")
	i.Open(p.AppURL + "/settings/user")
	i.Click("#workspaces ~ .rows summary")
	i.after(`form[action="/settings/members/leave"] button`, "input[name=confirm] ~ button", "leaving a workspace")
	i.Open(p.AppURL + "/settings/members/invite" + here)
	i.Fill("#invite-email", "ada")
	i.ClickAndSee(`form[action="/settings/members/invite"] .button-main`, "#problem")
	i.look("invitation with errors")
	i.Open(p.AppURL + "/settings/user/email")
	i.Press(TabKey)
	i.after(`form[action="/settings/user/email"] button`, "#email-note", "change of address with errors")
	developerPages(i, p, ws, here)
	usagePages(i, p, ws, user, here)
	longPages(i, p, ws, user)
	errorPages(i, p, here)
	secondFactorPages(i, p, user)
	emptyPages(i, p)
	statePages(i, p)
}

func developerPages(i *inspector, p *harness.Product, ws harness.TestWorkspace, here string) {
	i.t.Helper()
	i.Open(p.AppURL + "/settings/developers" + here)
	i.Click("summary.columns")
	i.ClickAndSee(`a[href^="/settings/developers/replace"]`, `form[action="/settings/developers/tokens/replace"]`)
	i.look("replacement of a token")
	i.Open(p.AppURL + "/settings/applications" + here)
	i.Open(harness.Evaluate[string](i.Browser, `document.querySelector("a[href*='/applications/secret']").href`))
	i.See(`form[action="/settings/developers/apps/secret"]`)
	i.look("replacement of a secret")
	i.Open(p.AppURL + "/settings/applications" + here)
	i.Open(harness.Evaluate[string](i.Browser, `document.querySelector("a[href*='/applications/delete']").href`))
	i.See(`form[action="/settings/developers/apps/delete"]`)
	i.look("deletion of an application")
	made := p.In(ws.Workspace, ws.Token).JSON(i.t, http.MethodPost, "/v1/webhooks", map[string]any{
		"url":   "https://hooks.example.org/almoner",
		"types": []string{"programme.created"},
	}).Wants(i.t, http.StatusCreated).Object(i.t)
	webhookPages(i, p, here, made["id"].(string))
	i.Open(p.AppURL + "/settings/developers/new" + here)
	i.after(`form[action="/settings/developers/tokens"] button[type=submit]`, "#problem", "new token with errors")
	i.Fill("#token-name", "Quarterly figures")
	i.Click(`input[name=permissions]`)
	i.Press(EnterKey)
	i.See("#shown-value")
	met.AddAll(harness.Evaluate[string](i.Browser, `document.getElementById("shown-value").value`))
	i.look("new token, shown once")
	i.Open(p.AppURL + "/settings/applications/new" + here)
	i.after(`form[action="/settings/developers/apps"] button[type=submit]`, "#problem", "new application with errors")
	i.Fill("#app-name", "Gift Aid export")
	i.Fill("#app-redirects", harness.RedirectURI)
	i.Click("input[name=permissions]")
	i.ClickAndSee(`form[action="/settings/developers/apps"] button[type=submit]`, "#shown-value")
	met.AddAll(harness.Evaluate[string](i.Browser, `document.getElementById("shown-value").value`))
	i.look("client secret, shown once")
}

// secondFactorPages sets an authenticator app up and signs in with it.
func secondFactorPages(i *inspector, p *harness.Product, user demo.User) {
	i.t.Helper()
	i.Open(p.AppURL + "/settings/security/authenticator")
	setUp(i.t, i.Browser)
	i.look("recovery codes")
	i.at(p.AppURL + "/settings/security/authenticator")
	i.ClickAndSee(`form[action="/logout"] button`, "#email")
	i.SignIn(user.Email, user.Password)
	i.See("#code")
	i.look("sign-in code")
}
