// Package browsertest opens the pages of an apitest.Server in a simple browser (Browser). The browser fills in forms
// and stores cookies but runs no scripts: what it can do works without JavaScript.
package browsertest

import (
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A Browser stores cookies and follows redirects only on request.
type Browser struct {
	t       testing.TB
	origin  string
	client  *http.Client
	Headers http.Header // sent with every request
}

// Browser opens a browser without cookies.
func (s *Server) Browser() *Browser {
	s.t.Helper()
	return At(s.t, s.URL)
}

// At opens a new browser for a server at origin that the test serves itself.
func At(t testing.TB, origin string) *Browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Browser{
		t:       t,
		origin:  origin,
		Headers: http.Header{},
		client: &http.Client{
			Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// SignedIn opens a browser in which person has signed in.
func (s *Server) SignedIn(person Person) *Browser {
	s.t.Helper()
	b := s.Browser()
	b.SignIn(person)
	return b
}

// SignIn signs person in.
func (b *Browser) SignIn(person Person) {
	b.t.Helper()
	page := b.Get("/login").Send("/login", Fields{"email": person.Email, "password": Password})
	if page.Status != http.StatusSeeOther {
		b.t.Fatalf("sign-in: %d %s", page.Status, page.Text())
	}
}

// Cookies returns the cookies that the browser sends to the server.
func (b *Browser) Cookies() []*http.Cookie {
	at, _ := url.Parse(b.origin)
	return b.client.Jar.Cookies(at)
}

// Session returns the value of the session's cookie, or "".
func (b *Browser) Session() string {
	for _, cookie := range b.Cookies() {
		if cookie.Name == "almoner" {
			return cookie.Value
		}
	}
	return ""
}

// SetCookies adds cookies of the server to the browser.
func (b *Browser) SetCookies(cookies []*http.Cookie) {
	at, _ := url.Parse(b.origin)
	b.client.Jar.SetCookies(at, cookies)
}

// Get opens a path.
func (b *Browser) Get(path string) *Page {
	b.t.Helper()
	return b.do(http.MethodGet, path, "", nil)
}

// Do sends any request.
func (b *Browser) Do(method, path, contentType string, body io.Reader) *Page {
	b.t.Helper()
	return b.do(method, path, contentType, body)
}

// Post sends a form that no page has offered.
func (b *Browser) Post(path string, fields url.Values) *Page {
	b.t.Helper()
	return b.do(http.MethodPost, path, "application/x-www-form-urlencoded", strings.NewReader(fields.Encode()))
}

func (b *Browser) do(method, path, contentType string, body io.Reader) *Page {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.t.Context(), method, b.origin+path, body)
	if err != nil {
		b.t.Fatal(err)
	}
	maps.Copy(request.Header, b.Headers)
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := b.client.Do(request)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return newPage(b, response, string(content))
}

// Issuer is the base URL of the API.
const Issuer = apitest.Issuer

// Resource is the REST API's resource identifier.
const Resource = apitest.REST

// Password is the password of every user that a Server creates.
const Password = "correct horse battery staple"

// A Server is authserver with users who can sign in.
type Server struct {
	*apitest.Server
	t    testing.TB
	hash credential.Secret
}

// Start serves a Server for the test. Requests may come from any address, because the loopback address is a trusted
// proxy. The changes are those of apitest.Start.
func Start(t testing.TB, changes ...apitest.Change) *Server {
	t.Helper()
	hash, err := session.HashPassword(Password, session.LowestCost())
	if err != nil {
		t.Fatal(err)
	}
	local := func(c *app.Config, url string) { c.AppURL, c.TrustedProxies = url, "127.0.0.1,::1" }
	return &Server{t: t, hash: hash, Server: apitest.Start(t, append([]apitest.Change{local}, changes...)...)}
}

// A Person is a user of the server.
type Person struct {
	ID    uuid.UUID
	Email string
}

// Stranger creates a user who can sign in and is a member of no workspace.
func (s *Server) Stranger() Person {
	s.t.Helper()
	email := "person-" + uuid.NewString()[:8] + "@example.org"
	id := s.Fixture.User(email)
	s.Fixture.Exec(`update account.users set password_hash = $2 where id = $1`, id, s.hash.Reveal())
	return Person{id, email}
}

// Member creates a user who can sign in and holds permissions in the fixture's workspace.
func (s *Server) Member(permissions ...perm.Permission) Person {
	s.t.Helper()
	person := s.Stranger()
	s.Fixture.Join(s.Fixture.WorkspaceID, person.ID, permissions...)
	return person
}
