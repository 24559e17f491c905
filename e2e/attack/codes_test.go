package attack

import (
	"crypto/rand"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// PKCE (RFC 7636; RFC 9700, section 4.8), the browser session, and passwords.

// copied returns a copy of the form with one field changed. A value of "-" removes the field.
func copied(form url.Values, name, value string) url.Values {
	out := maps.Clone(form)
	out.Set(name, value)
	if value == "-" {
		out.Del(name)
	}
	return out
}

func TestPKCE_VerifierIsRequiredAfterFailedAttempts(t *testing.T) {
	p := newProduct(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner).SignedIn(t)
	connector := ws.Connector(t, harness.ReadProgrammes)
	stolen := connector.Begin().Verifier // of the attacker's attempt
	for turn := range 5 {
		attempt := connector.Begin()
		form, right := attempt.CodeForm(attempt.Code(t, owner)), attempt.Verifier
		wrong := []string{ // three for each code; "-" sends none
			"wrong" + strings.Repeat("x", 43), "-", "",
			"-", "", "-",
			stolen, "-", attempt.Query.Get("code_challenge"),
			right[:len(right)-1], right + "A", strings.ToLower(right),
			strings.Repeat("é", 43), right + " ", "plain",
		}
		for _, verifier := range wrong[3*turn : 3*turn+3] {
			gets(t, connector.Post(t, copied(form, "code_verifier", verifier)),
				"a code was exchanged without its verifier", http.StatusBadRequest)
		}
		twice := maps.Clone(form)
		twice["code_verifier"] = []string{right, right}
		connector.Post(t, twice).WantsFlat(t, http.StatusBadRequest, "invalid_request")
		connector.Post(t, form).Tokens(t) // the right verifier still works
	}
}

// The browser session: fixation, and what ends a session.

// holder returns a browser that sends a cookie which an attacker chose or copied.
func holder(t *testing.T, p *harness.Product, who *harness.Person, cookies string) *harness.Person {
	t.Helper()
	other := p.Person(t, who.User)
	other.Header = http.Header{"Cookie": {cookies}}
	return other
}

func isSignedIn(t *testing.T, p *harness.Product, who *harness.Person) bool {
	t.Helper()
	return who.Open(t, p.AppURL+"/settings/user").Status == http.StatusOK
}

func TestSession_ChosenCookieIsReplaced(t *testing.T) {
	p := newProduct(t)
	user := p.Database.User(t)
	for _, chosen := range []string{
		"", "x", rand.Text() + rand.Text(), strings.Repeat("A", 43), "../../etc/passwd", "' or 1=1 --",
	} {
		victim := p.Person(t, user)
		victim.Header = http.Header{"Cookie": {"almoner=" + url.QueryEscape(chosen)}}
		answer := logIn(t, p, victim, user.Password)
		given := ""
		for _, cookie := range (&http.Response{Header: answer.Header}).Cookies() {
			if cookie.Name == "almoner" {
				given = cookie.Value
			}
			if !cookie.HttpOnly || cookie.SameSite != http.SameSiteLaxMode || cookie.Path != "/" ||
				cookie.Domain != "" {
				t.Errorf("the cookie %s is HttpOnly %v, SameSite %v, Path %q, Domain %q", cookie.Name, cookie.HttpOnly,
					cookie.SameSite, cookie.Path, cookie.Domain)
			}
		}
		if answer.Status != http.StatusSeeOther || len(given) < 40 || given == chosen {
			t.Errorf("got a session of %d characters after the chosen one (%q):\n%s", len(given), chosen, answer)
		}
		if strings.Contains(answer.Header.Get("Location"), given) {
			t.Error("the session is in a URL")
		}
		if isSignedIn(t, p, holder(t, p, victim, "almoner="+url.QueryEscape(chosen))) {
			t.Errorf("the chosen session %q is signed in", chosen)
		}
		if !isSignedIn(t, p, holder(t, p, victim, "almoner="+given)) {
			t.Error("the issued session is not signed in: the test proves nothing")
		}
	}
}

func TestSession_CopiedCookieEndsWithSession(t *testing.T) {
	p := newProduct(t)
	user := p.Database.User(t)
	for name, end := range map[string]func(who *harness.Person){
		"signed out":      func(who *harness.Person) { who.Submit(t, formAt(p, "/logout", url.Values{})) },
		"signed in again": func(who *harness.Person) { logIn(t, p, who, user.Password) },
		"reauthenticated": func(who *harness.Person) {
			who.Submit(t, formAt(p, "/login/again", url.Values{"password": {user.Password}}))
		},
		"ended elsewhere": func(who *harness.Person) {
			other := p.Person(t, user).SignedIn(t)
			other.Submit(t, formAt(p, "/settings/security/sign-out-others", url.Values{"key": {keyOf(t, p, other)}}))
		},
		"user disabled": func(*harness.Person) {
			p.Database.Exec(t, `update account.users set disabled_at = now() where id = $1`, user.ID)
		},
	} {
		who := p.Person(t, user).SignedIn(t)
		copied := who.Cookies()
		if !isSignedIn(t, p, holder(t, p, who, copied)) {
			t.Fatalf("%s: the copied cookie was never signed in", name)
		}
		end(who)
		if isSignedIn(t, p, holder(t, p, who, copied)) {
			t.Errorf("%s: the copied cookie is still signed in", name)
		}
		if name == "user disabled" {
			p.Database.Exec(t, `update account.users set disabled_at = null where id = $1`, user.ID)
		}
	}
}

// TestPassword_EveryByteCounts checks that every byte of a password counts (other products cut it at byte 72).
func TestPassword_EveryByteCounts(t *testing.T) {
	p := newProduct(t)
	user := p.Database.User(t)
	long := strings.Repeat("correct horse ", 8) // 112 bytes
	p.Database.Exec(t, `update account.users set password_hash = $2 where id = $1`, user.ID, hashOfLongPassword)
	try := func(password string) int { return logIn(t, p, p.Person(t, user), password).Status }
	for name, wrong := range map[string]string{
		"cut at 72":      long[:72],
		"another end":    long[:111] + "x",
		"longer":         long + "x",
		"a NUL":          long[:72] + "\x00" + long[73:],
		"a NUL and more": long + "\x00",
		"the hash":       hashOfLongPassword,
		"capitals":       strings.ToUpper(long),
	} {
		if status := try(wrong); status != http.StatusBadRequest {
			t.Errorf("%s: %d", name, status)
		}
	}
	if status := try(long); status != http.StatusSeeOther {
		t.Errorf("the right password: %d", status)
	}
}

// hashOfLongPassword is a cheap argon2id hash of "correct horse ", eight times.
const hashOfLongPassword = "$argon2id$v=19$m=1024,t=1,p=1$OhVcO6BZTNCjDpoZP5f3oQ$" +
	"dWHg2bAdZmqVM01nu8RG2UeRyuw0RhF1+JTZHWLCu+A"
