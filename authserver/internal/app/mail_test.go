package app_test

import (
	"encoding/base32"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
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
		s.wants(refusal, page.Send(passwordPage, fields), 400, refusal).Omits(newPassword)
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

// Mails are in the language that the recipient chose, and write times in the zone that the browser reported at the last
// sign-in that reported one.
func TestMail_IsInLanguageAndZoneOfRecipient(t *testing.T) {
	s := mailing(t)
	who := s.person()
	b := s.browser()
	b.SetCookies([]*http.Cookie{{Name: "zone", Value: "Asia/Kathmandu", Path: "/login"}})
	b.SignIn(who)
	const path = "/settings/user/mails"
	page := b.Get("/settings/user")
	refused := page.Send(path, browsertest.Fields{"language": "xx"})
	s.wants("another language", refused, 400, "Choose one of the languages.")
	done := page.Send(path, browsertest.Fields{"language": "cy"}).Follow()
	s.wants("the page", done, 200, "The language of your e-mails was saved.")
	equal(t, "the chosen language", done.Form(path).Get("language"), "cy")
	s.recorded(1, audit.UserMailsChanged, who.ID)

	other := s.browser()
	other.SetCookies([]*http.Cookie{{Name: "zone", Value: "../../etc/passwd", Path: "/login"}})
	other.SignIn(who)
	contains(t, "the mail", s.mail(who.Email, "Mewngofnodi newydd i’ch cyfrif", 1).Text, "Pryd: ", " UTC+0545\n")
	s.browser().Get(forgottenPage).Send(forgottenPage, browsertest.Fields{"email": who.Email})
	contains(t, "the link", s.mail(who.Email, "Gosod cyfrinair newydd", 1).Text, " UTC+0545.")
}

// An invitation, a change of permissions and a removal are mailed.
func TestMembers_ChangesAreMailed(t *testing.T) {
	s := mailing(t)
	ada, eve, sam := s.inviter(), s.member(perm.ProgrammesRead), newAddress()
	const path = "/settings/members"
	b := s.signedIn(ada)
	invited := browsertest.Fields{"email": sam, "permissions": string(perm.ProgrammesRead)}
	s.needs("inviting", b.Get(invitePage).Send(invitePage, invited), 303)
	s.wants("the members", b.Get(path), 200, "We sent an invitation to "+sam+".").Omits("alm_inv_")
	m := s.mail(sam, "Invitation to Riverside Food Bank", 1)
	contains(t, "the invitation", m.Text, "See programmes")
	s.wants("its link", s.browser().Get(s.link(m)), 200, sam)
	equal(t, "jobs with the token of an invitation", read[int](s, `select count(*) from account_jobs.river_job
		where args::text like '%alm_inv_%'`), 0)

	page := s.inWorkspace(path+"/member") + "&id=" + eve.ID.String()
	changed := b.Get(page).Send(path+"/permissions", browsertest.Fields{"permissions": "account:read:members"})
	s.needs("changing permissions", changed, 303)
	s.mail(eve.Email, "Your permissions were changed", 1)
	s.needs("removing", b.Get(page).Send(path+"/remove", browsertest.Fields{"confirm": "yes"}), 303)
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
	s.needs("adding", b.Get(s.inWorkspace("/settings/webhooks/new")).Send(path, browsertest.Fields{
		"url": "https://page.example.invalid/secret-path", "types": "programme.created", "personal": "yes",
		"password": browsertest.Password,
	}), 200, "The endpoint was added")
	says(added, 2, "Ada Okafor added", "at page.example.invalid to the workspace", "added in Settings",
		"with personal data: names")

	id := read[string](s, `select id::text from account.webhooks where url like 'https://page.%' and tenant_id = $1`,
		s.fixture.WorkspaceID)
	hook := s.inWorkspace("/settings/developers/webhook") + "&id=" + id
	for turn := range 3 { // off, on, off
		page := b.Get(hook).Send(path+"/personal-data", browsertest.Fields{"password": browsertest.Password})
		s.needs(fmt.Sprint("turn ", turn), page.Follow(), 200)
	}
	says("A webhook endpoint now gets personal data", 1, "Ada Okafor chose to send",
		"at page.example.invalid of the workspace", "names")
	equal(t, "mails to a member who manages nothing", len(s.box.Messages(other.Email)), 0)
}

// The changes of mail.Notices whose mail the store queues with the event.
func TestNotices_EachChangeOfSignInIsMailedOnce(t *testing.T) {
	s := mailing(t)
	who := s.member(perm.AccountAPIAccess, perm.ProgrammesRead)
	b := s.provider().linked(s, who)
	pages := map[string]bool{}
	mailed := func(subject, page string, words ...string) {
		t.Helper()
		pages[page] = true
		contains(t, subject, s.mail(who.Email, subject, 1).Text, append(words, s.url+page+"\n")...)
	}
	mailed("An account was linked to yours", linkPage, "IP address: "+s.address)

	s.needs("adding a passkey", newDevice(s).addTo(b, "Laptop"), 303)
	mailed("A passkey was added to your account", keysPage, "Name: Laptop")

	const appPage = "/settings/security/authenticator"
	setUp(t, b, appPage)
	mailed("An authenticator app was set up", appPage)
	codes := codesOn(b.Get(appPage).Send(appPage+"/codes", browsertest.Fields{}))
	mailed("Your recovery codes were replaced", appPage)
	asked := s.browser().Post("/login", url.Values{"email": {who.Email}, "password": {browsertest.Password}})
	s.needs("a recovery code", asked.Send("/login/code", browsertest.Fields{"code": codes[0]}), 303)
	mailed("A recovery code was used", appPage)
	b.Get(appPage).Send(appPage+"/remove", browsertest.Fields{})
	mailed("Your authenticator app was removed", appPage)

	b.Get(keysPage).Send(removeKey, browsertest.Fields{})
	mailed("A passkey was removed from your account", keysPage)
	b.Get(linkPage).Send(unlink, browsertest.Fields{})
	mailed("A linked account was removed", linkPage)

	const tokens = "/settings/developers"
	form := b.Get(s.inWorkspace(tokens + "/new")).Form(tokens + "/tokens")
	form.Set("name", "Nightly")
	form.Set("days", "7")
	form["permissions"] = []string{string(perm.ProgrammesRead)}
	for range 2 { // the second creates nothing
		s.needs("creating a token", b.Post(tokens+"/tokens", form), 200)
	}
	mailed("A personal access token was created", "/settings/security#tokens", "Name: Nightly\n")

	for action, n := range mail.Notices() {
		if n.ByEvent && action != audit.PasskeyStopped {
			delete(pages, n.Page)
			s.recorded(1, action, who.ID)
		}
	}
	if len(pages) > 0 {
		t.Errorf("the table does not have the pages %v", pages)
	}
	for _, m := range s.box.Messages(who.Email) {
		equal(t, "mails "+m.Subject, len(s.letters(who.Email, m.Subject)), 1)
	}
}

// The service is the test's own, because it counts all jobs.
func TestNotices_RefusedChangeIsNotMailed(t *testing.T) {
	s := ownMailing(t)
	who := s.person()
	b := s.signedIn(who)
	s.needs("adding a passkey", newDevice(s).addTo(b, "Laptop"), 303)
	s.mail(who.Email, "A passkey was added to your account", 1)
	s.removePassword(who)
	s.wants("removing it", b.Get(keysPage).Send(removeKey, browsertest.Fields{}), 409)
	equal(t, "mails", read[int](s, `select count(*) from account_jobs.river_job where kind = 'mail'`), 1)
}

// setUp sets an authenticator app up.
func setUp(t *testing.T, b *browsertest.Browser, path string) {
	t.Helper()
	page := b.Get(path)
	code, err := codeNow(page.Attribute("#setup-key", "value"))
	if err != nil {
		t.Fatalf("%v: %d %s", err, page.Status, page.Text())
	}
	if done := page.Send(path, browsertest.Fields{"code": code}); len(codesOn(done)) != 10 {
		t.Fatalf("%d %s", done.Status, done.Text())
	}
}

// codeNow returns the code that an app with this key shows.
func codeNow(key string) (string, error) {
	secret, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(strings.ReplaceAll(key, " ", ""))
	if err != nil {
		return "", err
	}
	return authenticator.Secret(secret).Code(time.Now())
}

// codesOn returns the recovery codes that a page shows.
func codesOn(page *browsertest.Page) (codes []string) {
	for _, n := range page.Elements("textarea#recovery-codes") {
		codes = append(codes, strings.Fields(browsertest.TextOf(n))...)
	}
	return codes
}

// token creates a personal access token, from how long ago and until when.
func (s *site) token(who browsertest.Person, name string, age, left time.Duration) {
	s.t.Helper()
	s.fixture.Exec(`insert into account.personal_access_tokens (id, hash, user_id, tenant_id, name, permissions,
		created_at, expires_at) values ($1::uuid, sha256($1::uuid::text::bytea), $2, $3, $4, '{}', now() - $5::interval,
		now() + $6::interval)`, uuid.New(), who.ID, s.fixture.WorkspaceID, name, age, left)
}

// Tokens of 90, 30 and 7 days, and tokens whose owner gets no mail. The service is the test's own, because it waits for
// all jobs.
func TestTokens_ExpiryIsMailedOnce(t *testing.T) {
	s := ownMailing(t)
	await.True(t, "the job runs at the start", func() bool {
		return read[int](s, `select count(*) from account_jobs.river_job
			where kind = 'periodic' and state = 'completed'`) > 0
	})
	const day = 24 * time.Hour
	who, quiet, disabled := s.person(), s.person(), s.person()
	s.fixture.Exec(`insert into account.unwanted_mails values ($1, 'token_expiring')`, quiet.ID)
	s.fixture.Exec(`update account.users set disabled_at = now() where id = $1`, disabled.ID)
	s.token(who, "ninety in a week", 83*day, 7*day-time.Minute)
	s.token(who, "thirty in two days", 28*day, 2*day)
	s.token(who, "seven in a day", 6*day, day-time.Minute)
	s.token(who, "ninety in eight days", 82*day, 8*day)
	s.token(who, "seven is new", 0, 7*day)
	s.token(who, "seven in two days", 5*day, 2*day)
	s.token(who, "expired", 30*day, -time.Minute)
	s.token(who, "revoked", 28*day, 2*day)
	s.fixture.Exec(`update account.personal_access_tokens set revoked_at = now() where name = 'revoked'`)
	s.token(quiet, "quiet", 28*day, 2*day)
	s.token(disabled, "disabled", 28*day, 2*day)
	for range 2 {
		s.fixture.Exec(`insert into account_jobs.river_job (kind, args, max_attempts, queue)
			values ('periodic', '{}', 3, 'periodic')`)
		s.awaitJobs("periodic")
	}
	const subject = "A personal access token is about to expire"
	s.mail(who.Email, subject, 3)
	s.awaitJobs("mail")
	var told strings.Builder
	for _, m := range s.letters("", subject) {
		told.WriteString(m.Text)
	}
	for _, name := range []string{"ninety in a week", "thirty in two days", "seven in a day"} {
		equal(t, "mails about "+name, strings.Count(told.String(), "token "+name), 1)
	}
	equal(t, "mails", len(s.letters("", subject)), 3)
	equal(t, "mails that name the workspace", strings.Count(told.String(), "Almoner · Riverside Food Bank"), 3)
}

// If a deployment sets a brand name, passkeys, logs and mails show it and never the name Almoner.
func TestBrand_NoOtherNameIsShown(t *testing.T) {
	s := ownMailing(t, func(c *app.Config) {
		c.BrandName, c.MailFrom = "Harbour Trust", "Harbour Trust <harbour@example.org>"
	})
	who := s.member(perm.AccountAPIAccess)
	s.fixture.Exec(`insert into account.audit_events (id, tenant_id, actor, action, subject, detail)
		values (gen_random_uuid(), $1, 'system', $2, 'token:x', '{"reason": "replaced"}')`,
		s.fixture.WorkspaceID, audit.TokenRevoked)
	b := s.signedIn(who)
	s.forgotten(who)
	letter := s.mail(who.Email, subjectReset, 1)
	for what, text := range map[string]string{
		"the challenge of a passkey": s.options(b, "/settings/passkeys/options"),
		"the audit log":              b.Get("/settings/audit").Body,
		"the mail as text":           letter.Text,
		"the mail as HTML":           letter.HTML,
	} {
		contains(t, what, text, "Harbour Trust")
		omits(t, what, text, "Almoner")
	}
}
