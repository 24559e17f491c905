package signin_test

import (
	"net/http"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

func TestSession_OutageIsNotSignedOut(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := site.Member()
	browser, stranger := site.SignedIn(ada), site.Browser()
	restore := site.CutPostgres()
	form := map[string][]string{"email": {ada.Email}, "password": {browsertest.Password}}
	for name, page := range map[string]*browsertest.Page{
		"a page":      browser.Get("/login"),
		"a sign-in":   stranger.Post("/login", form),
		"a wrong one": stranger.Post("/login", map[string][]string{"email": {ada.Email}, "password": {"wrong"}}),
		"a sign-out":  browser.Post("/logout", nil),
	} {
		if page.Status != http.StatusServiceUnavailable || page.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", name, page.Status, page.Text())
		}
		if !page.HasText("you were not signed out") || page.HasText("signed in") {
			t.Errorf("%s: claims to know who is signed in: %s", name, page.Text())
		}
	}
	restore()
	if page := browser.Get("/login"); page.Status != http.StatusSeeOther {
		t.Errorf("the session is gone after the outage: %d", page.Status)
	}
}

func TestSession_EndsOnEndExpiryIdleAndDisabledUser(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	for name, sql := range map[string]string{
		"ended elsewhere": `update account.sign_ins set ended_at = now() where user_id = $1`,
		"expired":         `update account.sign_ins set expires_at = now() where user_id = $1`,
		"idle": `update account.sign_ins set last_seen_at = now() - interval '2 hours 1 second'
			where user_id = $1`,
		"disabled": `update account.users set disabled_at = now() where id = $1`,
	} {
		ada := site.Member()
		browser := site.SignedIn(ada)
		if page := browser.Get("/login"); page.Status != http.StatusSeeOther {
			t.Fatalf("%s: not signed in at first", name)
		}
		site.Fixture.Exec(sql, ada.ID)
		if page := browser.Get("/login"); page.Status != http.StatusOK {
			t.Errorf("%s: still signed in", name)
		}
	}
}

func TestSession_UseResetsIdleTime(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := site.Member()
	browser := site.SignedIn(ada)
	site.Fixture.Exec(
		`update account.sign_ins set last_seen_at = now() - interval '1 hour 59 minutes' where user_id = $1`,
		ada.ID,
	)
	browser.Get("/login")
	if n := site.Count(`select count(*) from account.sign_ins
		where user_id = $1 and last_seen_at > now() - interval '1 minute'`, ada.ID); n != 1 {
		t.Error("the use of the sign-in was not recorded")
	}
}

func TestSignIn_EndsPreviousSessionOfBrowser(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada, bob := site.Member(), site.Member()
	browser := site.SignedIn(ada)
	before, session := browser.Cookies(), browser.Session()
	browser.Post("/login", map[string][]string{"email": {bob.Email}, "password": {browsertest.Password}})
	if after := browser.Session(); after == "" || after == session {
		t.Error("the session's identifier is the same after the sign-in")
	}
	if n := site.Count(`select count(*) from account.sign_ins
		where user_id = $1 and ended_at is not null`, ada.ID); n != 1 {
		t.Error("the previous sign-in is still active")
	}
	fixed := site.Browser()
	fixed.SetCookies(before)
	if page := fixed.Get("/login"); page.Status != http.StatusOK {
		t.Error("the previous session is still active")
	}
}
