package app_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/mailbox"
)

const newPassword = "tide lantern quarry"

// A post is a site that sends mail, with the mailbox of all its users.
type post struct {
	*site
	box *mailbox.Mailbox
}

func serveMail(t *testing.T) post {
	t.Helper()
	return serveMailAnd(t, func(*app.Config) {})
}

// serveMailAnd is serveMail with another change of the configuration.
func serveMailAnd(t *testing.T, change func(*app.Config)) post {
	t.Helper()
	box, err := mailbox.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(box.Close)
	return post{box: box, site: serve(t, func(c *app.Config) {
		c.SMTPURL, c.MailFrom = credential.Secret(box.URL()), "Almoner <almoner@example.org>"
		c.Passkeys = true
		change(c)
	})}
}

// mail waits for the n-th message with a subject to an address, and returns it.
func (p post) mail(to, subject string, n int) mailbox.Message {
	p.t.Helper()
	for deadline := time.After(await.Long); ; {
		changed := p.box.Changed()
		var found []mailbox.Message
		for _, m := range p.box.Messages(to) {
			if m.Subject == subject {
				found = append(found, m)
			}
		}
		if len(found) >= n {
			return found[0]
		}
		select {
		case <-changed:
		case <-deadline:
			p.t.Fatalf("%d mails %q to %s, want %d; the log is\n%s", len(found), subject, to, n, p.log)
		}
	}
}

// link returns the path of the link in a mail.
func (p post) link(m mailbox.Message) string {
	p.t.Helper()
	for line := range strings.Lines(m.Text) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), p.url); ok {
			return path
		}
	}
	p.t.Fatalf("no link in %q", m.Text)
	return ""
}

// TestChangePassword_AsksForCurrentOne checks the refusals, the change, and that other browsers are signed out by
// default.
func TestChangePassword_AsksForCurrentOne(t *testing.T) {
	t.Parallel()
	p := serveMail(t)
	who := p.person()
	here, other := p.signedIn(who), p.signedIn(who)
	const path = "/settings/security/password"
	page := here.Get(path)
	for name, fields := range map[string]browsertest.Fields{
		"incorrect": {"password": "wrong wrong wrong", "new-password": newPassword},
		"Enter":     {"new-password": newPassword},
		"at least":  {"password": browsertest.Password, "new-password": "short"},
		"easy":      {"password": browsertest.Password, "new-password": "password1234"},
	} {
		refused := page.Send(path, fields)
		if refused.Status != 400 || !refused.HasText(name) || strings.Contains(refused.Body, newPassword) {
			t.Errorf("%s: %d %s", name, refused.Status, refused.Text())
		}
	}
	kept := page.Form(path)
	kept.Del("end-others")
	kept.Set("password", browsertest.Password)
	kept.Set("new-password", newPassword)
	if done := here.Post(path, kept); done.Location() != "/settings/security" || !inside(other) || !inside(here) {
		t.Fatalf("%d %s", done.Status, done.Text())
	}
	p.mail(who.Email, "Your password was changed", 1)
	done := here.Get(path).Send(path, browsertest.Fields{"password": newPassword, "new-password": newPassword + " two"})
	if done.Status != 303 || inside(other) || !inside(here) {
		t.Errorf("%d; other browser %v, this one %v", done.Status, inside(other), inside(here))
	}
	if p.events(who.ID, audit.UserPasswordChanged) != 2 {
		t.Error("events are missing")
	}
}

// TestSignIn_NewBrowserIsMailed checks that the first sign-in of an account, and a browser that is known, are not.
func TestSignIn_NewBrowserIsMailed(t *testing.T) {
	t.Parallel()
	p := serveMail(t)
	who := p.person()
	first := p.signedIn(who)
	first.Get("/settings/user").Send("/logout", browsertest.Fields{})
	first.SignIn(who)
	p.signedIn(who)
	m := p.mail(who.Email, "New sign-in to your account", 1)
	if !strings.Contains(m.Text, "127.0.0.1") || strings.Contains(m.HTML, "<img") ||
		strings.Contains(m.HTML, "<script") {
		t.Errorf("%s", m.Raw)
	}
	if n := len(p.box.Messages(who.Email)); n != 1 {
		t.Errorf("%d mails", n)
	}
}

// TestMembers_ChangesAreMailed checks the mails of an invitation, and of a member whose permissions change and who is
// removed.
func TestMembers_ChangesAreMailed(t *testing.T) {
	t.Parallel()
	p := serveMail(t)
	ada, eve := p.person(), p.person()
	manages := []perm.Permission{perm.AccountReadMembers, perm.AccountWriteMembers, perm.ProgrammesRead}
	p.fixture.Join(p.fixture.WorkspaceID, ada.ID, manages...)
	p.fixture.Join(p.fixture.WorkspaceID, eve.ID, perm.ProgrammesRead)
	b := p.signedIn(ada)
	const path = "/settings/members"
	page := b.Get(path + "/invite")
	invited := b.Post(path+"/invite", url.Values{
		"key":         {page.Form(path + "/invite").Get("key")},
		"tenant":      {page.Form(path + "/invite").Get("tenant")},
		"email":       {"sam@example.org"},
		"permissions": {"programmes:read:programmes"},
	})
	if invited.Status != 303 {
		t.Fatalf("%d %s", invited.Status, invited.Text())
	}
	shown := b.Get(path)
	if !shown.HasText("We sent an invitation to sam@example.org.") || strings.Contains(shown.Body, "alm_inv_") {
		t.Fatalf("%s", shown.Text())
	}
	m := p.mail("sam@example.org", "Invitation to Riverside Food Bank", 1)
	if !strings.Contains(m.Text, "See programmes") {
		t.Errorf("%s", m.Text)
	}
	if offer := p.browser().Get(p.link(m)); offer.Status != 200 || !offer.HasText("sam@example.org") {
		t.Errorf("%d %s", offer.Status, offer.Text())
	}
	if n := p.count(`select count(*) from account_jobs.river_job where args::text like '%alm_inv_%'`); n != 0 {
		t.Error("the token of the invitation is stored")
	}

	member := b.Get(path + "/member?tenant=" + p.fixture.WorkspaceID.String() + "&id=" + eve.ID.String())
	form := member.Form(path + "/permissions")
	form["permissions"] = []string{"account:read:members"}
	if done := b.Post(path+"/permissions", form); done.Status != 303 {
		t.Fatalf("%d %s", done.Status, done.Text())
	}
	p.mail(eve.Email, "Your permissions were changed", 1)
	form = b.Get(path + "/member?tenant=" + p.fixture.WorkspaceID.String() + "&id=" + eve.ID.String()).
		Form(path + "/remove")
	form.Set("confirm", "yes")
	if done := b.Post(path+"/remove", form); done.Status != 303 {
		t.Fatalf("%d %s", done.Status, done.Text())
	}
	p.mail(eve.Email, "You were removed from a workspace", 1)
}

func TestMail_ReportsDisabledWebhook(t *testing.T) {
	t.Parallel()
	p := serveMail(t)
	who := p.person()
	add := func(reason string) string {
		id := uuid.NewString()
		p.fixture.Exec(`insert into account.webhooks (id, tenant_id, user_id, url, types, secret, secret_key, position,
			created_at, enabled, reason, disabled_at, mail_due)
			values ($1, $2, $3, 'https://hooks.example.org/secret-path', '{programme.created}', '', '', 0, now(),
				false, $4, now(), true)`, id, p.fixture.WorkspaceID, who.ID, reason)
		return id
	}
	add("failing")
	m := p.mail(who.Email, "A webhook endpoint was disabled", 1)
	if !strings.Contains(m.Text, "at hooks.example.org of the workspace") ||
		!strings.Contains(m.Text, "for three days") || strings.Contains(m.Text, "secret-path") {
		t.Errorf("%q", m.Text)
	}
	add("gone")
	if m := p.mail(who.Email, "A webhook endpoint was disabled", 2); !strings.Contains(m.Text, "410") {
		t.Errorf("%q", m.Text)
	}
	var n int
	p.fixture.Read("select count(*) from account.webhooks where mail_due", &n)
	if n != 0 {
		t.Errorf("%d mails are due", n)
	}
}

// An endpoint is mailed to the person who added it and to all who can manage the members: one that a token added at
// resourceapi, and one of the page.
func TestMail_ReportsAddedWebhook(t *testing.T) {
	t.Parallel()
	p := serveMail(t)
	who, manager, other := p.person(), p.person(), p.person()
	p.fixture.Join(p.fixture.WorkspaceID, who.ID, perm.AccountAPIAccess, perm.ProgrammesRead)
	p.fixture.Join(p.fixture.WorkspaceID, manager.ID, perm.AccountWriteMembers)
	p.fixture.Join(p.fixture.WorkspaceID, other.ID, perm.AccountAPIAccess)
	p.token(who, "Nightly export", time.Hour, 24*time.Hour)
	p.fixture.Exec(`insert into account.webhooks (id, tenant_id, user_id, url, types, secret, secret_key, position,
			created_at, added_mail_due, token_id)
		select $1, $2, $3, 'https://hooks.example.org/secret-path', '{programme.created}', '', '', 0, now(), true, id
		from account.personal_access_tokens where user_id = $3`, uuid.NewString(), p.fixture.WorkspaceID, who.ID)
	wants := func(n int, words ...string) {
		t.Helper()
		for _, to := range []string{who.Email, manager.Email} {
			m := p.mail(to, "A webhook endpoint was added", n)
			page := "/settings/webhooks?tenant=" + p.fixture.WorkspaceID.String()
			for _, text := range append(words, "Ada Okafor added", page) {
				if !strings.Contains(m.Text, text) || strings.Contains(m.Text, "secret-path") {
					t.Errorf("%q does not have %q", m.Text, text)
				}
			}
		}
	}
	wants(1, "at hooks.example.org to the workspace", "with the personal access token Nightly export, and ends with it",
		"without personal data")

	p.fixture.Exec(`insert into account.webhook_keys (public_key) values (decode(repeat('09', 32), 'hex'))`)
	const path = "/settings/developers/webhooks"
	b := p.signedIn(who)
	form := b.Get("/settings/webhooks/new?tenant=" + p.fixture.WorkspaceID.String()).Form(path)
	form.Set("url", "https://page.example.invalid/secret-path")
	form["types"] = []string{"programme.created"}
	form.Set("personal", "yes")
	form.Set("password", browsertest.Password)
	if page := b.Post(path, form); page.Status != 200 || !page.HasText("The endpoint was added") {
		t.Fatalf("%d %s", page.Status, page.Text())
	}
	wants(2, "at page.example.invalid to the workspace", "added in Settings", "with personal data: names")

	var id string
	p.fixture.Read("select id::text from account.webhooks where url like 'https://page.%'", &id)
	hook := "/settings/developers/webhook?tenant=" + p.fixture.WorkspaceID.String() + "&id=" + id
	for range 3 { // off, on, off
		form := b.Get(hook).Form(path + "/personal-data")
		form.Set("password", browsertest.Password)
		if page := b.Post(path+"/personal-data", form).Follow(); page.Status != 200 {
			t.Fatalf("%d %s", page.Status, page.Text())
		}
	}
	for _, to := range []string{who.Email, manager.Email} {
		m := p.mail(to, "A webhook endpoint now gets personal data", 1)
		for _, text := range []string{"Ada Okafor chose to send", "at page.example.invalid of the workspace", "names"} {
			if !strings.Contains(m.Text, text) || strings.Contains(m.Text, "secret-path") {
				t.Errorf("%q does not have %q", m.Text, text)
			}
		}
	}
	if n := len(p.box.Messages(other.Email)); n != 0 {
		t.Errorf("%d mails to a member who manages nothing", n)
	}
}
