package settings_test

import (
	"encoding/base32"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

const authenticatorPath = "/settings/security/authenticator"

// withApp sets an authenticator app up with the code of this moment. It returns the app's secret, the moment, and the
// recovery codes.
func withApp(t *testing.T, b *browsertest.Browser) (authenticator.Secret, time.Time, []string) {
	t.Helper()
	page := b.Get(authenticatorPath)
	key := strings.ReplaceAll(page.Attribute("#setup-key", "value"), " ", "")
	secret, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(key)
	if err != nil || len(secret) != 20 {
		t.Fatalf("the key has %d bytes, %v", len(secret), err)
	}
	now := time.Now()
	wrong := page.Send(authenticatorPath, browsertest.Fields{"code": "000000"})
	if wrong.Status != http.StatusBadRequest ||
		!wrong.HasText("The code is incorrect") || wrong.Form(authenticatorPath).Get("setup") == "" {
		t.Fatalf("a wrong code: %d", wrong.Status)
	}
	done := page.Send(authenticatorPath, browsertest.Fields{"code": codeOf(t, secret, now)})
	codes := codesOn(done)
	if done.Status != http.StatusOK || len(codes) != 10 || done.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d with %d codes", done.Status, len(codes))
	}
	return secret, now, codes
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

func codeOf(t *testing.T, secret authenticator.Secret, at time.Time) string {
	t.Helper()
	code, err := secret.Code(at)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// password sends the right password and returns the page that follows.
func password(b *browsertest.Browser, who browsertest.Person) *browsertest.Page {
	return b.Post("/login",
		url.Values{"email": {who.Email}, "password": {browsertest.Password}, "return": {"/settings/apps"}})
}

func TestAuthenticator_PasswordNeedsCode(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead)
	secret, now, recovery := withApp(t, site.SignedIn(ada))

	b := site.Browser()
	asked := password(b, ada).Wants(http.StatusOK, "Enter a code")
	const path = "/login/code"
	for name, code := range map[string]string{
		"wrong":                 "000000",
		"the code of the setup": codeOf(t, secret, now),
		"empty":                 "",
	} {
		asked.Send(path, browsertest.Fields{"code": code}).As(name).Wants(http.StatusBadRequest)
		if signedIn(b) {
			t.Errorf("%s: signed in", name)
		}
	}
	next := codeOf(t, secret, now.Add(30*time.Second))
	asked.Send(path, browsertest.Fields{"code": next}).LeadsTo("/settings/apps").Follow().Wants(http.StatusOK)
	password(site.Browser(), ada).Send(path, browsertest.Fields{"code": next}).Wants(400)

	third := site.Browser()
	first := browsertest.Fields{"code": strings.ToUpper(recovery[0])}
	password(third, ada).Send(path, first).LeadsTo("/settings/apps").Follow().Wants(http.StatusOK)
	password(site.Browser(), ada).Send(path, first).Wants(400)
	third.Get("/settings/security").Says("Manage the app", "Used a recovery code", "Set up an authenticator app")
	third.Get(authenticatorPath).Says("You have 9 unused recovery codes")
	events(site, 4, ada, audit.CodeFailed)
}

func TestAuthenticator_TicketEndsWithThePassword(t *testing.T) {
	site := shared(t)
	ada, eve := site.Member(perm.ProgrammesRead), site.Member(perm.ProgrammesRead)
	_, _, recovery := withApp(t, site.SignedIn(ada))
	asked := password(site.Browser(), ada)
	for name, ticket := range map[string]string{"none": "", "nonsense": "nonsense"} {
		asked.Send("/login/code", browsertest.Fields{"code": recovery[0], "ticket": ticket}).As(name).Wants(400).
			Contains(`action="/login"`)
	}
	site.Fixture.Exec(`update account.users set password_hash =
		(select password_hash from account.users where id = $1) || 'x' where id = $2`, eve.ID, ada.ID)
	asked.Send("/login/code", browsertest.Fields{"code": recovery[0]}).Wants(400, "Please sign in again")
}

func TestAuthenticator_OneRecoveryCodeSignsInOnce(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead)
	_, _, recovery := withApp(t, site.SignedIn(ada))
	const tries = 4
	var pages [tries]*browsertest.Page
	for i := range pages {
		pages[i] = password(site.Browser(), ada)
	}
	count := map[int]int{}
	for _, page := range atOnce(tries, func(i int) *browsertest.Page {
		return pages[i].Send("/login/code", browsertest.Fields{"code": recovery[0]})
	}) {
		count[page.Status]++
	}
	if count[http.StatusSeeOther] != 1 || count[http.StatusBadRequest] != tries-1 {
		t.Errorf("%v", count)
	}
}

func TestAuthenticator_ReauthenticationNeedsCode(t *testing.T) {
	site := own(t)
	b := site.SignedIn(site.Member(perm.AccountAPIAccess, perm.ProgrammesRead))
	_, _, recovery := withApp(t, b)
	site.Wait(11 * time.Minute)
	b.Get(authenticatorPath).Says("confirm your identity first").Lacks("Remove the app")
	key := b.Get("/settings/security/password").Form("/settings/security/password")
	for _, path := range []string{authenticatorPath + "/remove", authenticatorPath + "/codes"} {
		b.Post(path, url.Values{"key": key["key"]})
	}
	b.Get(authenticatorPath).Says("confirm your identity first")
	question := b.Get("/login/again?return=" + url.QueryEscape(authenticatorPath))
	right := browsertest.Fields{"password": browsertest.Password, "code": recovery[0]}
	for name, fields := range map[string]browsertest.Fields{
		"no code":    {"password": browsertest.Password},
		"wrong code": {"password": browsertest.Password, "code": "000000"},
	} {
		question.Send("/login/again", fields).As(name).Wants(400)
	}
	question.Send("/login/again", right).LeadsTo(authenticatorPath)
}

func TestAuthenticator_CodesAreReplacedAndAppIsRemoved(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead)
	b := site.SignedIn(ada)
	_, _, recovery := withApp(t, b)
	page := b.Get(authenticatorPath)
	replaced := page.Send(authenticatorPath+"/codes", nil)
	if n := len(codesOn(replaced)); n != 10 {
		t.Errorf("%d new codes", n)
	}
	old := browsertest.Fields{"code": recovery[1]}
	password(site.Browser(), ada).Send("/login/code", old).Wants(400)
	page.Send(authenticatorPath+"/remove", nil).LeadsTo("/settings/security")
	password(site.Browser(), ada).LeadsTo("/settings/apps")
}

func TestAuthenticator_TriesAreLimited(t *testing.T) {
	site := shared(t)
	ada := site.Member(perm.ProgrammesRead)
	_, _, recovery := withApp(t, site.SignedIn(ada))
	asked := password(site.Browser(), ada)
	for i := range 20 {
		asked.Send("/login/code", browsertest.Fields{"code": "000000"}).As(i).Wants(400)
	}
	asked.Send("/login/code", browsertest.Fields{"code": recovery[0]}).
		Wants(http.StatusTooManyRequests).HasHeader("Retry-After")
}
