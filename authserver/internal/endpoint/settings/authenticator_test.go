package settings_test

import (
	"encoding/base32"
	"net/http"
	"net/url"
	"strings"
	"sync"
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
	var key string
	for _, n := range page.Elements("input") {
		if browsertest.Attribute(n, "id") == "setup-key" {
			key = strings.ReplaceAll(browsertest.Attribute(n, "value"), " ", "")
		}
	}
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
	return b.Post("/login", url.Values{
		"email":    {who.Email},
		"password": {browsertest.Password},
		"return":   {"/settings/apps"},
	})
}

func TestAuthenticator_PasswordNeedsCode(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := site.Member(perm.ProgrammesRead)
	secret, now, recovery := withApp(t, site.SignedIn(ada))

	b := site.Browser()
	asked := password(b, ada)
	if asked.Status != http.StatusOK || !asked.HasText("Enter a code") || signedIn(b) {
		t.Fatalf("%d, signed in: %t", asked.Status, signedIn(b))
	}
	const path = "/login/code"
	for name, code := range map[string]string{
		"wrong":                 "000000",
		"the code of the setup": codeOf(t, secret, now),
		"empty":                 "",
	} {
		page := asked.Send(path, browsertest.Fields{"code": code})
		if page.Status != http.StatusBadRequest || signedIn(b) {
			t.Errorf("%s: %d, signed in: %t", name, page.Status, signedIn(b))
		}
	}
	next := codeOf(t, secret, now.Add(30*time.Second))
	if page := asked.Send(path, browsertest.Fields{"code": next}); page.Location() != "/settings/apps" || !signedIn(b) {
		t.Fatalf("%d, signed in: %t", page.Status, signedIn(b))
	}
	if page := password(site.Browser(), ada).Send(path, browsertest.Fields{"code": next}); page.Status != 400 {
		t.Errorf("the same code again: %d", page.Status)
	}

	third := site.Browser()
	first := browsertest.Fields{"code": strings.ToUpper(recovery[0])}
	if page := password(third, ada).Send(path, first); page.Location() != "/settings/apps" || !signedIn(third) {
		t.Errorf("a recovery code: %d", page.Status)
	}
	if page := password(site.Browser(), ada).Send(path, first); page.Status != 400 {
		t.Errorf("a recovery code again: %d", page.Status)
	}
	security := third.Get("/settings/security")
	for _, words := range []string{"Manage the app", "Used a recovery code", "Set up an authenticator app"} {
		if !security.HasText(words) {
			t.Errorf("Security does not say %q", words)
		}
	}
	if !third.Get(authenticatorPath).HasText("You have 9 unused recovery codes") {
		t.Error("the page does not count the recovery codes")
	}
	if n := site.Count(`select count(*) from account.audit_events where user_id = $1 and action = '`+
		string(audit.CodeFailed)+`'`, ada.ID); n != 4 {
		t.Errorf("%d events of wrong codes", n)
	}
}

func TestAuthenticator_TicketEndsWithThePassword(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada, eve := site.Member(perm.ProgrammesRead), site.Member(perm.ProgrammesRead)
	_, _, recovery := withApp(t, site.SignedIn(ada))
	asked := password(site.Browser(), ada)
	for name, ticket := range map[string]string{"none": "", "nonsense": "nonsense"} {
		page := asked.Send("/login/code", browsertest.Fields{"code": recovery[0], "ticket": ticket})
		if page.Status != 400 || page.Form("/login") == nil {
			t.Errorf("%s: %d", name, page.Status)
		}
	}
	site.Fixture.Exec(`update account.users set password_hash =
		(select password_hash from account.users where id = $1) || 'x' where id = $2`, eve.ID, ada.ID)
	if page := asked.Send("/login/code", browsertest.Fields{"code": recovery[0]}); page.Status != 400 ||
		!page.HasText("Please sign in again") {
		t.Errorf("after a new password: %d", page.Status)
	}
}

func TestAuthenticator_OneRecoveryCodeSignsInOnce(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := site.Member(perm.ProgrammesRead)
	_, _, recovery := withApp(t, site.SignedIn(ada))
	const tries = 4
	var pages [tries]*browsertest.Page
	for i := range pages {
		pages[i] = password(site.Browser(), ada)
	}
	var group sync.WaitGroup
	statuses := make(chan int, tries)
	for _, page := range pages {
		group.Go(func() {
			statuses <- page.Send("/login/code", browsertest.Fields{"code": recovery[0]}).Status
		})
	}
	group.Wait()
	close(statuses)
	count := map[int]int{}
	for status := range statuses {
		count[status]++
	}
	if count[http.StatusSeeOther] != 1 || count[http.StatusBadRequest] != tries-1 {
		t.Errorf("%v", count)
	}
}

func TestAuthenticator_ReauthenticationNeedsCode(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := site.Member(perm.AccountAPIAccess, perm.ProgrammesRead)
	b := site.SignedIn(ada)
	_, _, recovery := withApp(t, b)
	site.Wait(11 * time.Minute)
	page := b.Get(authenticatorPath)
	if !page.HasText("confirm your identity first") || page.HasText("Remove the app") {
		t.Errorf("an old sign-in may change the app: %s", page.Text())
	}
	key := b.Get("/settings/security/password").Form("/settings/security/password")
	for _, path := range []string{authenticatorPath + "/remove", authenticatorPath + "/codes"} {
		b.Post(path, url.Values{"key": key["key"]})
	}
	if page := b.Get(authenticatorPath); !page.HasText("confirm your identity first") {
		t.Fatal("the app was removed")
	}
	question := b.Get("/login/again?return=" + url.QueryEscape(authenticatorPath))
	right := browsertest.Fields{"password": browsertest.Password, "code": recovery[0]}
	for name, fields := range map[string]browsertest.Fields{
		"no code":    {"password": browsertest.Password},
		"wrong code": {"password": browsertest.Password, "code": "000000"},
	} {
		if page := question.Send("/login/again", fields); page.Status != 400 {
			t.Errorf("%s: %d", name, page.Status)
		}
	}
	if page := question.Send("/login/again", right); page.Location() != authenticatorPath {
		t.Fatalf("%d %s", page.Status, page.Text())
	}
}

func TestAuthenticator_CodesAreReplacedAndAppIsRemoved(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := site.Member(perm.ProgrammesRead)
	b := site.SignedIn(ada)
	_, _, recovery := withApp(t, b)
	page := b.Get(authenticatorPath)
	replaced := page.Send(authenticatorPath+"/codes", nil)
	if n := len(codesOn(replaced)); n != 10 {
		t.Errorf("%d new codes", n)
	}
	old := browsertest.Fields{"code": recovery[1]}
	if page := password(site.Browser(), ada).Send("/login/code", old); page.Status != 400 {
		t.Errorf("a replaced recovery code: %d", page.Status)
	}
	if done := page.Send(authenticatorPath+"/remove", nil); done.Location() != "/settings/security" {
		t.Errorf("%d %s", done.Status, done.Text())
	}
	if page := password(site.Browser(), ada); page.Location() != "/settings/apps" {
		t.Errorf("after the removal the password is not enough: %d", page.Status)
	}
}

func TestAuthenticator_TriesAreLimited(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := site.Member(perm.ProgrammesRead)
	_, _, recovery := withApp(t, site.SignedIn(ada))
	asked := password(site.Browser(), ada)
	for i := range 20 {
		if page := asked.Send("/login/code", browsertest.Fields{"code": "000000"}); page.Status != 400 {
			t.Fatalf("try %d: %d", i+1, page.Status)
		}
	}
	page := asked.Send("/login/code", browsertest.Fields{"code": recovery[0]})
	if page.Status != http.StatusTooManyRequests || page.Header.Get("Retry-After") == "" {
		t.Errorf("%d", page.Status)
	}
}
