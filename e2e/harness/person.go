package harness

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// A Person is a user at a browser. Cookies are stored and forms are sent with their fields. Redirects are followed
// only on request and only within the app.
type Person struct {
	demo.User
	Header http.Header // of every request

	product *Product
	client  *http.Client
}

// Person returns a user at a new browser without cookies.
func (p *Product) Person(t testing.TB, user demo.User) *Person {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	p.secrets.Add("password", user.Password)
	client := &http.Client{Jar: jar, Timeout: timeout, CheckRedirect: followNothing, Transport: p.client.Transport}
	return &Person{User: user, Header: http.Header{}, product: p, client: client}
}

// Open opens a URL without following redirects.
func (p *Person) Open(t testing.TB, address string) Page {
	t.Helper()
	return p.send(t, http.MethodGet, address, "", "")
}

// Request sends a request with any method and body from this browser.
func (p *Person) Request(t testing.TB, method, address, contentType, body string) Page {
	t.Helper()
	return p.send(t, method, address, contentType, body)
}

// Submit sends a form.
func (p *Person) Submit(t testing.TB, form Form) Page {
	t.Helper()
	return p.send(t, http.MethodPost, form.Action, "application/x-www-form-urlencoded", form.Fields.Encode())
}

func (p *Person) send(t testing.TB, method, address, contentType, body string) Page {
	t.Helper()
	header := p.Header.Clone()
	if contentType != "" {
		header.Set("Content-Type", contentType)
	}
	return newPage(t, p, address, p.product.roundTrip(t, p.client, method, address, header, body))
}

// SignIn fills in and submits the form of the login page. It returns the response: a redirect, or the page again.
func (p *Person) SignIn(t testing.TB, login Page) Page {
	t.Helper()
	form := login.FormWith(t, "form input[name=password]")
	form.Fields.Set("email", p.Email)
	form.Fields.Set("password", p.Password)
	return p.Submit(t, form)
}

// Arrive opens a URL as a browser would: it follows redirects within the app and signs in on the login page. It
// returns the first other response.
func (p *Person) Arrive(t testing.TB, address string) Page {
	t.Helper()
	page := p.Open(t, address)
	for range 6 {
		switch {
		case page.IsLogin():
			page = p.SignIn(t, page)
		case page.leadsWithin():
			page = p.Follow(t, page)
		default:
			return page
		}
	}
	t.Fatalf("too many redirects from %s", page.Request)
	return Page{}
}

// Follow opens the redirect target of a page, which must be within the app.
func (p *Person) Follow(t testing.TB, page Page) Page {
	t.Helper()
	if !page.leadsWithin() {
		t.Fatalf("want a redirect within the app:\n%s", page)
	}
	next, err := page.URL.Parse(page.Header.Get("Location"))
	if err != nil {
		t.Fatalf("the redirect target is not a URL:\n%s", page)
	}
	return p.Open(t, next.String())
}

// leadsWithin reports whether the response redirects to another page of the app.
func (p Page) leadsWithin() bool {
	if p.Status < 300 || p.Status > 399 {
		return false
	}
	next, err := p.URL.Parse(p.Header.Get("Location"))
	app, err2 := url.Parse(p.person.product.AppURL)
	return err == nil && err2 == nil && next.Scheme == app.Scheme && next.Host == app.Host
}

// SignedIn signs the person in on the login page.
func (p *Person) SignedIn(t testing.TB) *Person {
	t.Helper()
	var answer Page
	await.True(t, "passwords are checked", func() bool { // too many people may be signing in on a busy machine
		answer = p.SignIn(t, p.Open(t, p.product.AppURL+"/login"))
		return answer.Status != http.StatusTooManyRequests
	})
	if answer.Status != http.StatusSeeOther {
		t.Fatalf("sign-in failed:\n%s", answer)
	}
	return p
}

// Consent opens the authorization request, which must lead to the consent page.
func (p *Person) Consent(t testing.TB, request url.Values) Page {
	t.Helper()
	page := p.Arrive(t, p.product.AuthorizeURL(request))
	if !page.IsConsent() {
		t.Fatalf("want the consent page:\n%s", page)
	}
	return page
}

// AuthorizeURL returns the URL of the consent page (spec 4.4) for a request. A parameter with several values is sent
// several times.
func (p *Product) AuthorizeURL(request url.Values) string {
	return p.AppURL + "/oauth/authorize?" + request.Encode()
}

// SessionCookie returns the value of the session's cookie, or "" if the user is not signed in.
func (p *Person) SessionCookie() string {
	for cookie := range strings.SplitSeq(p.Cookies(), "; ") {
		if value, found := strings.CutPrefix(cookie, "almoner="); found {
			return value
		}
	}
	return ""
}

// Cookies returns the Cookie header that this browser would send to the app.
func (p *Person) Cookies() string {
	app, err := url.Parse(p.product.AppURL)
	if err != nil {
		return ""
	}
	var out []string
	for _, cookie := range p.client.Jar.Cookies(app) {
		out = append(out, cookie.Name+"="+cookie.Value)
	}
	return strings.Join(out, "; ")
}
