package app_test

import (
	"encoding/base32"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

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
	mailed("An account was linked to yours", linkPage, "(address "+s.address+")")

	s.needs("adding a passkey", newDevice(s).addTo(b, "Laptop"), 303)
	mailed("A passkey was added to your account", keysPage, "The passkey Laptop was added")

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
	mailed("A personal access token was created", "/settings/security#tokens", "token Nightly for the workspace")

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
	for _, n := range page.Elements("input") {
		if browsertest.Attribute(n, "id") != "setup-key" {
			continue
		}
		key := strings.ReplaceAll(browsertest.Attribute(n, "value"), " ", "")
		secret, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(key)
		if err != nil {
			t.Fatal(err)
		}
		code, err := authenticator.Secret(secret).Code(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if done := page.Send(path, browsertest.Fields{"code": code}); len(codesOn(done)) != 10 {
			t.Fatalf("%d %s", done.Status, done.Text())
		}
		return
	}
	t.Fatalf("no key: %d %s", page.Status, page.Text())
}

// codesOn returns the recovery codes that a page shows.
func codesOn(page *browsertest.Page) (codes []string) {
	for _, n := range page.Elements("textarea") {
		if text := n.FirstChild; text != nil && browsertest.Attribute(n, "id") == "recovery-codes" {
			codes = append(codes, strings.Split(text.Data, "\n")...)
		}
	}
	return codes
}
