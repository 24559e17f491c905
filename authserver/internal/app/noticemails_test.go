package app_test

import (
	"encoding/base32"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// TestNotices_EachChangeOfSignInIsMailedOnce makes the changes of mail.Notices whose mail the store queues with the
// event.
func TestNotices_EachChangeOfSignInIsMailedOnce(t *testing.T) {
	t.Parallel()
	upstream := newProvider(t)
	p := serveMailAnd(t, upstream.of)
	who := p.person()
	p.fixture.Join(p.fixture.WorkspaceID, who.ID, perm.AccountAPIAccess, perm.ProgrammesRead)
	b := upstream.linked(p.site, who)
	pages := map[string]bool{}
	mailed := func(subject, page string, words ...string) {
		t.Helper()
		pages[page] = true
		m := p.mail(who.Email, subject, 1)
		for _, text := range append(words, p.url+page+"\n") {
			if !strings.Contains(m.Text, text) {
				t.Errorf("%q does not have %q:\n%s", subject, text, m.Text)
			}
		}
	}
	mailed("An account was linked to yours", linkPage, "(address 127.0.0.1)")

	if page := newDevice(p.site).addTo(b, "Laptop"); page.Status != http.StatusSeeOther {
		t.Fatalf("%d %s", page.Status, page.Text())
	}
	mailed("A passkey was added to your account", "/settings/passkeys", "The passkey Laptop was added")

	const appPage = "/settings/security/authenticator"
	setUp(t, b, appPage)
	mailed("An authenticator app was set up", appPage)
	codes := codesOn(b.Get(appPage).Send(appPage+"/codes", browsertest.Fields{}))
	mailed("Your recovery codes were replaced", appPage)
	other := p.browser()
	asked := other.Post("/login", url.Values{"email": {who.Email}, "password": {browsertest.Password}})
	if page := asked.Send("/login/code", browsertest.Fields{"code": codes[0]}); page.Status != http.StatusSeeOther {
		t.Fatalf("%d %s", page.Status, page.Text())
	}
	mailed("A recovery code was used", appPage)
	b.Get(appPage).Send(appPage+"/remove", browsertest.Fields{})
	mailed("Your authenticator app was removed", appPage)

	b.Get("/settings/passkeys").Send("/settings/passkeys/remove", browsertest.Fields{})
	mailed("A passkey was removed from your account", "/settings/passkeys")
	b.Get(linkPage).Send(unlink, browsertest.Fields{})
	mailed("A linked account was removed", linkPage)

	const tokens = "/settings/developers"
	form := b.Get(tokens + "/new?tenant=" + p.fixture.WorkspaceID.String()).Form(tokens + "/tokens")
	form.Set("name", "Nightly")
	form.Set("days", "7")
	form["permissions"] = []string{string(perm.ProgrammesRead)}
	for range 2 { // the second creates nothing
		if made := b.Post(tokens+"/tokens", form); made.Status != http.StatusOK {
			t.Fatalf("%d %s", made.Status, made.Text())
		}
	}
	mailed("A personal access token was created", "/settings/security#tokens", "token Nightly for the workspace")

	for action, n := range mail.Notices() {
		if n.ByEvent && action != audit.PasskeyStopped {
			delete(pages, n.Page)
			if p.events(who.ID, action) != 1 {
				t.Errorf("%s did not happen once", action)
			}
		}
	}
	if len(pages) > 0 {
		t.Errorf("the table does not have the pages %v", pages)
	}
	subjects := map[string]int{}
	for _, m := range p.box.Messages(who.Email) {
		if subjects[m.Subject]++; subjects[m.Subject] > 1 {
			t.Errorf("%q was sent more than once", m.Subject)
		}
	}
}

func TestNotices_RefusedChangeIsNotMailed(t *testing.T) {
	t.Parallel()
	p := serveMailAnd(t, func(*app.Config) {})
	who := p.person()
	b := p.signedIn(who)
	if page := newDevice(p.site).addTo(b, "Laptop"); page.Status != http.StatusSeeOther {
		t.Fatalf("%d %s", page.Status, page.Text())
	}
	p.mail(who.Email, "A passkey was added to your account", 1)
	p.fixture.Exec(`update account.users set password_hash = null where id = $1`, who.ID)
	page := b.Get("/settings/passkeys").Send("/settings/passkeys/remove", browsertest.Fields{})
	queued := p.count(`select count(*) from account_jobs.river_job where kind = 'mail'`)
	if page.Status != http.StatusConflict || queued != 1 {
		t.Errorf("%d with %d mails", page.Status, queued)
	}
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
