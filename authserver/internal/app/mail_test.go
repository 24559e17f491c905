package app_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/mailbox"
)

// letters returns the messages with a subject to an address, the newest first.
func (s *site) letters(to, subject string) (found []mailbox.Message) {
	for _, m := range s.box.Messages(to) {
		if m.Subject == subject {
			found = append(found, m)
		}
	}
	return found
}

// mail waits for the n-th message with a subject to an address, and returns it.
func (s *site) mail(to, subject string, n int) mailbox.Message {
	s.t.Helper()
	for deadline := time.After(await.Long); ; {
		changed := s.box.Changed()
		found := s.letters(to, subject)
		if len(found) >= n {
			return found[0]
		}
		select {
		case <-changed:
		case <-deadline:
			s.t.Fatalf("%d mails %q to %s, want %d; the log is\n%s", len(found), subject, to, n, s.log)
		}
	}
}

// link returns the path of the link in a mail.
func (s *site) link(m mailbox.Message) string {
	s.t.Helper()
	for line := range strings.Lines(m.Text) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), s.url); ok {
			return path
		}
	}
	s.t.Fatalf("no link in %q", m.Text)
	return ""
}

// inWorkspace returns the path of a settings page for the test's workspace.
func (s *site) inWorkspace(path string) string {
	return path + "?tenant=" + s.fixture.WorkspaceID.String()
}

// The current password is asked for, and other browsers are signed out by default.
func TestChangePassword_AsksForCurrentOne(t *testing.T) {
	s := mailing(t)
	who := s.person()
	here, other := s.signedIn(who), s.signedIn(who)
	page := here.Get(passwordPage)
	for refusal, fields := range map[string]browsertest.Fields{
		"incorrect": {"password": "wrong wrong wrong", "new-password": newPassword},
		"Enter":     {"new-password": newPassword},
		"at least":  {"password": browsertest.Password, "new-password": "short"},
		"easy":      {"password": browsertest.Password, "new-password": "password1234"},
	} {
		refused := page.Send(passwordPage, fields)
		s.wants(refusal, refused, 400, refusal)
		omits(t, refusal, refused.Body, newPassword)
	}
	kept := page.Form(passwordPage)
	kept.Del("end-others")
	kept.Set("password", browsertest.Password)
	kept.Set("new-password", newPassword)
	s.needs("without ending others", here.Post(passwordPage, kept), 303, "/settings/security")
	equal(t, "both are signed in", inside(other) && inside(here), true)
	s.mail(who.Email, "Your password was changed", 1)
	fields := browsertest.Fields{"password": newPassword, "new-password": newPassword + " two"}
	s.wants("by default", here.Get(passwordPage).Send(passwordPage, fields), 303)
	equal(t, "the other is signed in", inside(other), false)
	equal(t, "this one is signed in", inside(here), true)
	s.recorded(2, audit.UserPasswordChanged, who.ID)
}

// The first sign-in of an account, and one at a browser that is known, are not mailed.
func TestSignIn_NewBrowserIsMailed(t *testing.T) {
	s := mailing(t)
	who := s.person()
	first := s.signedIn(who)
	first.Get("/settings/user").Send("/logout", browsertest.Fields{})
	first.SignIn(who)
	s.signedIn(who)
	m := s.mail(who.Email, "New sign-in to your account", 1)
	contains(t, "the mail", m.Text, s.address)
	omits(t, "the mail", m.HTML, "<img", "<script")
	equal(t, "mails", len(s.box.Messages(who.Email)), 1)
}

// An invitation, a change of permissions and a removal are mailed.
func TestMembers_ChangesAreMailed(t *testing.T) {
	s := mailing(t)
	ada, eve, sam := s.inviter(), s.member(perm.ProgrammesRead), newAddress()
	const path = "/settings/members"
	b := s.signedIn(ada)
	form := b.Get(invitePage).Form(invitePage)
	form.Set("email", sam)
	form["permissions"] = []string{"programmes:read:programmes"}
	s.needs("inviting", b.Post(invitePage, form), 303)
	shown := b.Get(path)
	s.needs("the members", shown, 200, "We sent an invitation to "+sam+".")
	omits(t, "the members", shown.Body, "alm_inv_")
	m := s.mail(sam, "Invitation to Riverside Food Bank", 1)
	contains(t, "the invitation", m.Text, "See programmes")
	s.wants("its link", s.browser().Get(s.link(m)), 200, sam)
	equal(t, "jobs with the token of an invitation", read[int](s, `select count(*) from account_jobs.river_job
		where args::text like '%alm_inv_%'`), 0)

	page := s.inWorkspace(path+"/member") + "&id=" + eve.ID.String()
	form = b.Get(page).Form(path + "/permissions")
	form["permissions"] = []string{"account:read:members"}
	s.needs("changing permissions", b.Post(path+"/permissions", form), 303)
	s.mail(eve.Email, "Your permissions were changed", 1)
	form = b.Get(page).Form(path + "/remove")
	form.Set("confirm", "yes")
	s.needs("removing", b.Post(path+"/remove", form), 303)
	s.mail(eve.Email, "You were removed from a workspace", 1)
}

func TestMail_ReportsDisabledWebhook(t *testing.T) {
	s := mailing(t)
	who := s.person()
	for i, reason := range []string{"failing", "gone"} {
		s.fixture.Exec(`insert into account.webhooks (id, tenant_id, user_id, url, types, secret, secret_key, position,
			created_at, enabled, reason, disabled_at, mail_due)
			values (gen_random_uuid(), $1, $2, 'https://hooks.example.org/secret-path', '{programme.created}', '', '',
				0, now(), false, $3, now(), true)`, s.fixture.WorkspaceID, who.ID, reason)
		m := s.mail(who.Email, "A webhook endpoint was disabled", i+1)
		says := map[string]string{"failing": "for three days", "gone": "410"}[reason]
		contains(t, reason, m.Text, "at hooks.example.org of the workspace", says)
		omits(t, reason, m.Text, "secret-path")
	}
	s.rows(0, "webhooks", "mail_due and tenant_id = $1", s.fixture.WorkspaceID)
}

// An endpoint is mailed to the person who added it and to all who can manage the members: one that a token added at
// resourceapi, and one of the page.
func TestMail_ReportsAddedWebhook(t *testing.T) {
	s := mailing(t)
	who, manager := s.member(perm.AccountAPIAccess, perm.ProgrammesRead), s.member(perm.AccountWriteMembers)
	other := s.member(perm.AccountAPIAccess)
	says := func(subject string, n int, words ...string) {
		t.Helper()
		for _, to := range []string{who.Email, manager.Email} {
			m := s.mail(to, subject, n)
			contains(t, subject, m.Text, append(words, s.inWorkspace("/settings/webhooks"))...)
			omits(t, subject, m.Text, "secret-path")
		}
	}
	const added = "A webhook endpoint was added"
	s.token(who, "Nightly export", time.Hour, 24*time.Hour)
	s.fixture.Exec(`insert into account.webhooks (id, tenant_id, user_id, url, types, secret, secret_key, position,
			created_at, added_mail_due, token_id)
		select gen_random_uuid(), $1, $2, 'https://hooks.example.org/secret-path', '{programme.created}', '', '', 0,
			now(), true, id
		from account.personal_access_tokens where user_id = $2`, s.fixture.WorkspaceID, who.ID)
	says(added, 1, "Ada Okafor added", "at hooks.example.org to the workspace",
		"with the personal access token Nightly export, and ends with it", "without personal data")

	s.fixture.Exec(`insert into account.webhook_keys (public_key) values (decode(repeat('09', 32), 'hex'))
		on conflict do nothing`)
	const path = "/settings/developers/webhooks"
	b := s.signedIn(who)
	form := b.Get(s.inWorkspace("/settings/webhooks/new")).Form(path)
	form.Set("url", "https://page.example.invalid/secret-path")
	form["types"] = []string{"programme.created"}
	form.Set("personal", "yes")
	form.Set("password", browsertest.Password)
	s.needs("adding", b.Post(path, form), 200, "The endpoint was added")
	says(added, 2, "Ada Okafor added", "at page.example.invalid to the workspace", "added in Settings",
		"with personal data: names")

	id := read[string](s, `select id::text from account.webhooks where url like 'https://page.%' and tenant_id = $1`,
		s.fixture.WorkspaceID)
	hook := s.inWorkspace("/settings/developers/webhook") + "&id=" + id
	for turn := range 3 { // off, on, off
		form := b.Get(hook).Form(path + "/personal-data")
		form.Set("password", browsertest.Password)
		s.needs(fmt.Sprint("turn ", turn), b.Post(path+"/personal-data", form).Follow(), 200)
	}
	says("A webhook endpoint now gets personal data", 1, "Ada Okafor chose to send",
		"at page.example.invalid of the workspace", "names")
	equal(t, "mails to a member who manages nothing", len(s.box.Messages(other.Email)), 0)
}
