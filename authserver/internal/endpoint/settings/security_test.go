package settings_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

func signedIn(b *browsertest.Browser) bool { return b.Get("/settings/user").Status == http.StatusOK }

func TestSecurity_ListsBrowsersAndSignsOthersOut(t *testing.T) {
	site := shared(t)
	ada, eve := site.Member(perm.ProgrammesRead), site.Member(perm.ProgrammesRead)
	here, there, third, hers := site.SignedIn(ada), site.Browser(), site.SignedIn(ada), site.SignedIn(eve)
	there.Headers.Set("User-Agent", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 "+
		"Version/18.0 Mobile/15E148 Safari/604.1")
	there.Headers.Set("X-Forwarded-For", "192.0.2.9")
	there.SignIn(ada)
	page := here.Get("/settings/security")
	page.Says("This browser", "Safari on an iPhone", "192.0.2.9", "Signed in with Safari on an iPhone")
	form := page.Pressed("/settings/security/sign-out")
	var theirs string
	const signInOf = `select id::text from account.sign_ins where user_id = $1`
	if err := site.Fixture.Owner.QueryRow(t.Context(), signInOf, eve.ID).Scan(&theirs); err != nil {
		t.Fatal(err)
	}
	here.Post("/settings/security/sign-out", url.Values{"key": form["key"], "id": {theirs}})
	if !signedIn(hers) {
		t.Fatal("another user was signed out")
	}
	here.Post("/settings/security/sign-out", form).Follow()
	site.SignedIn(ada).Post("/logout", nil)
	text := here.Get("/settings/security").Says("Signed out another browser").Text()
	if other, all := strings.Count(text, "Signed out another"), strings.Count(text, "Signed out"); all != other+1 {
		t.Errorf("a user's own sign-out is not told from the sign-out of another browser: %s", text)
	}
	if signedIn(there) == signedIn(third) {
		t.Error("want exactly one browser signed out")
	}
	here.Post("/settings/security/sign-out-others", form).Follow().Says("1 other browser was signed out")
	if signedIn(there) || signedIn(third) || !signedIn(here) || !signedIn(hers) {
		t.Error("want every other browser of this user signed out, and no other browser")
	}
}

func TestSecurity_ShowsWrongPasswords(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead)
	thief := site.Browser()
	thief.Headers.Set("X-Forwarded-For", "192.0.2.66")
	thief.Post("/login", url.Values{"email": {ada.Email}, "password": {"wrong"}})
	site.SignedIn(ada).Get("/settings/security").Says("Sign-in failed: wrong password", "192.0.2.66")
}

func TestFlash_IsShownOnce(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead)
	here := site.SignedIn(ada)
	site.SignedIn(ada)
	form := here.Get("/settings/security").Form("/settings/security/sign-out-others")
	here.Post("/settings/security/sign-out-others", form).Follow().Says("1 other browser was signed out")
	here.Get("/settings/security").Lacks("1 other browser was signed out")
}
