package signin_test

import (
	"net/http"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

func TestSession_OutageIsNotSignedOut(t *testing.T) {
	site := own(t)
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
		page.As(name).Wants(http.StatusServiceUnavailable).HasHeader("Retry-After")
		page.As(name).Says("you were not signed out").Lacks("signed in")
	}
	restore()
	browser.Get("/login").Wants(http.StatusSeeOther)
}

func TestSession_EndsOnEndExpiryIdleAndDisabledUser(t *testing.T) {
	site := shared(t)
	for name, sql := range map[string]string{
		"ended elsewhere": `update account.sign_ins set ended_at = now() where user_id = $1`,
		"expired":         `update account.sign_ins set expires_at = now() where user_id = $1`,
		"idle": `update account.sign_ins set last_seen_at = now() - interval '2 hours 1 second'
			where user_id = $1`,
		"disabled": `update account.users set disabled_at = now() where id = $1`,
	} {
		ada := site.Member()
		browser := site.SignedIn(ada)
		browser.Get("/login").As(name).Wants(http.StatusSeeOther)
		site.Fixture.Exec(sql, ada.ID)
		browser.Get("/login").As(name).Wants(http.StatusOK)
	}
}

func TestSession_UseResetsIdleTime(t *testing.T) {
	site := shared(t)
	ada := site.Member()
	browser := site.SignedIn(ada)
	site.Fixture.Exec(
		`update account.sign_ins set last_seen_at = now() - interval '1 hour 59 minutes' where user_id = $1`, ada.ID)
	browser.Get("/login")
	site.CountIs(1, `select count(*) from account.sign_ins
		where user_id = $1 and last_seen_at > now() - interval '1 minute'`, ada.ID)
}

func TestSignIn_EndsPreviousSessionOfBrowser(t *testing.T) {
	site := shared(t)
	ada, bob := site.Member(), site.Member()
	browser := site.SignedIn(ada)
	before, session := browser.Cookies(), browser.Session()
	browser.Post("/login", map[string][]string{"email": {bob.Email}, "password": {browsertest.Password}})
	if after := browser.Session(); after == "" || after == session {
		t.Error("the session's identifier is the same after the sign-in")
	}
	site.CountIs(1, `select count(*) from account.sign_ins
		where user_id = $1 and ended_at is not null`, ada.ID)
	fixed := site.Browser()
	fixed.SetCookies(before)
	fixed.Get("/login").Wants(http.StatusOK)
}
