package e2e

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Contract, section 4 (login before consent) and section 7 (wrong passwords).

func TestLogin_ReturnsToRequest(t *testing.T) {
	t.Parallel()
	p := enter(t)
	app := p.DemoConfidential()
	request := app.Request()
	request.Set("state", `a b+c%&=;?/#"<é>'`)
	request.Set("ui_locales", "cy en") // not supported, and ignored
	person := p.Person(t, p.Demo.Users.Owner)
	login := person.Arrive(t, p.AuthorizeURL(request))
	if !login.IsConsent() {
		t.Fatalf("login did not lead to the consent page:\n%s", login)
	}
	callback := login.Press(t, "approve").Callback(t)
	if got := callback.Values.Get("state"); got != request.Get("state") {
		t.Errorf("the state is %q after login, want %q", got, request.Get("state"))
	}
}

func TestLogin_PageHasForm(t *testing.T) {
	t.Parallel()
	p := enter(t)
	page := p.Person(t, p.Demo.Users.Owner).Open(t, p.AppURL+"/login").WantsPage(t, http.StatusOK)
	form := page.FormWith(t, "form input[name=password]")
	if !strings.HasPrefix(form.Action, p.AppURL+"/") {
		t.Errorf("the form's action is %s", form.Action)
	}
	for _, name := range []string{"email", "password"} {
		field := page.Find("input[name=" + name + "]")
		if page.Find(`label[for="`+field.AttrOr("id", "?")+`"]`).Length() != 1 {
			t.Errorf("the field %s has no label", name)
		}
	}
	if page.Find("input[name=password]").AttrOr("type", "") != "password" {
		t.Error("the password field does not have type password")
	}
}

func TestLogin_FailureIs400Page(t *testing.T) {
	t.Parallel()
	p := enter(t)
	user := p.Database.User(t)
	attempt := func(email, password string) harness.Page {
		person := p.Person(t, user)
		person.Email, person.Password = email, password
		return person.SignIn(t, person.Open(t, p.AppURL+"/login"))
	}
	for name, page := range map[string]harness.Page{
		"wrong password":   attempt(user.Email, "not the password"),
		"unknown e-mail":   attempt("nobody."+user.Email, user.Password),
		"empty password":   attempt(user.Email, ""),
		"empty e-mail":     attempt("", user.Password),
		"password in caps": attempt(user.Email, strings.ToLower(user.Password)),
	} {
		t.Run(name, func(t *testing.T) {
			page.WantsPage(t, http.StatusBadRequest)
			if page.Find("form input[name=password]").AttrOr("value", "") != "" {
				t.Error("the page contains the password")
			}
		})
	}
	// Neither the page nor the status shows whether an account exists.
	known, unknown := attempt(user.Email, "not the password"), attempt("nobody."+user.Email, "not the password")
	withoutName := strings.ReplaceAll(unknown.Text(), "nobody.", "")
	if stripRequestID(known.Text()) != stripRequestID(withoutName) {
		t.Error("the pages of an unknown e-mail and of a wrong password differ")
	}
}

func stripRequestID(text string) string {
	before, _, _ := strings.Cut(text, "Request id")
	return before
}

func TestLogin_MalformedFormIs400Page(t *testing.T) {
	t.Parallel()
	p := enter(t)
	user := p.Person(t, p.Demo.Users.Owner)
	for name, body := range map[string]string{
		"empty":        "",
		"bad escape":   "email=%zz&password=x",
		"e-mail twice": "email=a%40b.example&email=c%40d.example&password=x",
	} {
		t.Run(name, func(t *testing.T) {
			user.Request(t, http.MethodPost, p.AppURL+"/login", "application/x-www-form-urlencoded", body).
				WantsPage(t, http.StatusBadRequest)
		})
	}
}

// "the 11th within 15 minutes for one account from one address is 429 with Retry-After" (contract, section 7)
func TestLogin_EleventhWrongPasswordIs429(t *testing.T) {
	t.Parallel()
	p := enter(t)
	user, other := p.Database.User(t), p.Database.User(t)
	person := p.Person(t, user)
	person.Password = "not the password"
	for range 10 {
		person.SignIn(t, person.Open(t, p.AppURL+"/login")).WantsPage(t, http.StatusBadRequest)
	}
	person.SignIn(t, person.Open(t, p.AppURL+"/login")).WantsPage(t, http.StatusTooManyRequests).WantsRetryAfter(t)
	p.Person(t, other).SignedIn(t) // another user at the same address can sign in
}

func TestLogin_NoOpenRedirect(t *testing.T) {
	t.Parallel()
	p := enter(t)
	for _, elsewhere := range []string{
		"https://evil.example/", "//evil.example/", `/\evil.example/`, `\\evil.example`, "/\t/evil.example",
		"javascript:alert(1)", "/%2F/evil.example", "/%5Cevil.example", "/x\r\nLocation: https://evil.example",
	} {
		user := p.Person(t, p.Demo.Users.Reader)
		page := user.SignIn(t, user.Open(t, p.AppURL+"/login?"+url.Values{"return": {elsewhere}}.Encode()))
		if page.Status != http.StatusSeeOther {
			continue // rejected
		}
		target, err := page.URL.Parse(page.Header.Get("Location"))
		if err != nil || target.Host != page.URL.Host || strings.ContainsAny(page.Header.Get("Location"), "\\\t") {
			t.Errorf("return=%q led to %q", elsewhere, page.Header.Get("Location"))
		}
	}
}

func TestLogin_RejectsOtherOrigin(t *testing.T) {
	t.Parallel()
	p := enter(t)
	user := p.Person(t, p.Demo.Users.Reader)
	login := user.Open(t, p.AppURL+"/login")
	user.Header = http.Header{"Origin": {"https://evil.example"}}
	user.SignIn(t, login).WantsPage(t, http.StatusForbidden)
	user.Header = http.Header{"Sec-Fetch-Site": {"cross-site"}}
	user.SignIn(t, login).WantsPage(t, http.StatusForbidden)
}

// A session id from before the login is not valid after it, whether it was anonymous or set by an attacker.
func TestLogin_RenewsSession(t *testing.T) {
	t.Parallel()
	p := enter(t)
	request := p.AuthorizeURL(p.DemoConfidential().Request())
	attacker := p.Person(t, p.Database.User(t)).SignedIn(t)
	planted := attacker.Cookies()
	if planted == "" {
		t.Fatal("no cookie to plant")
	}
	login := p.Person(t, p.Demo.Users.Reader).Open(t, request)
	form := login.FormWith(t, "form input[name=password]")
	form.Fields.Set("email", p.Demo.Users.Reader.Email)
	form.Fields.Set("password", p.Demo.Users.Reader.Password)
	// the victim signs in at the browser with the planted cookie
	if answer := attacker.Submit(t, form); answer.Status != http.StatusSeeOther {
		t.Fatalf("sign-in failed:\n%s", answer)
	}
	if attacker.Cookies() == planted {
		t.Error("the login did not change the session id")
	}
	thief := p.Person(t, p.Demo.Users.Reader)
	thief.Header = http.Header{"Cookie": {planted}}
	if page := thief.Open(t, request); page.IsConsent() {
		t.Error("the cookie from before the login is signed in as the user")
	}
}
