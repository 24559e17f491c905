package app_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// A leader is a client that leads the browser on from its callback: to another port, and from there to a scheme of its
// own, with the query that came.
type leader struct {
	callback string
	origins  []string
	last     string // where the second hop leads
}

func newLeader(t *testing.T) *leader {
	t.Helper()
	l := &leader{}
	hop := func(to func() string) string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, to()+"?"+r.URL.RawQuery, http.StatusFound)
		}))
		t.Cleanup(server.Close)
		l.origins = append(l.origins, server.URL)
		return server.URL
	}
	second := hop(func() string { return l.last })
	l.callback = hop(func() string { return second + "/app" }) + "/callback"
	return l
}

// arrival returns the query with which the browser began to go to an address.
func (c *chromium) arrival(address string) url.Values {
	c.t.Helper()
	var query url.Values
	await.True(c.t, "the browser goes to "+address, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, went := range c.requested {
			if at, rest, _ := strings.Cut(went, "?"); at == address {
				query, _ = url.ParseQuery(rest)
				return true
			}
		}
		return len(c.faults) > 0
	})
	if query == nil {
		c.noFaults()
	}
	return query
}

// enroll sets an authenticator app up for the user who is signed in, and returns the recovery codes.
func (c *chromium) enroll() []string {
	c.t.Helper()
	c.open("/settings/security/authenticator")
	key, err := chromedp.Run(c.ctx, chromedp.Value(chromedp.CSS("#setup-key")))
	c.site.must(err)
	code, err := codeNow(key)
	c.site.must(err)
	c.fill("code", code)
	c.press("button", "Set up the app")
	codes, err := chromedp.Run(c.ctx, chromedp.Value(chromedp.CSS("#recovery-codes")))
	c.site.must(err)
	return strings.Fields(codes)
}

// password submits the sign-in form on the page.
func (c *chromium) password(who browsertest.Person) {
	c.t.Helper()
	c.fill("email", who.Email)
	c.fill("password", browsertest.Password)
	c.press("button", "Sign in")
}

// An arrival is a browser in which a user authorizes a client, and the client that leads it on.
type arrival struct {
	*chromium
	client    *leader
	connector client.Client
	who       browsertest.Person
	codes     []string // recovery codes of who
	turn      int
}

// A way is one to sign in on the way to the consent page. Before prepares the browser.
type way struct {
	before func(a *arrival)
	takes  func(a *arrival, request string)
	errors bool // every error is tried, not only one
}

// An ending is how the user or a mistake of the client ends the request.
type ending struct {
	press   string            // button of the consent page
	changed map[string]string // parameters of the request
	wants   map[string]string // parameters that the client gets
}

func endings() map[string]ending {
	all := map[string]ending{
		"approve": {press: "Approve", wants: map[string]string{"state": "s"}},
		"deny":    {press: "Deny", wants: map[string]string{"state": "s", "error": "access_denied"}},
		"without state": {
			changed: map[string]string{"state": ""}, wants: map[string]string{"state": "", "error": "invalid_request"},
		},
	}
	for code, changed := range map[string]map[string]string{
		"invalid_scope":             {"scope": "nothing:we:know"},
		"invalid_target":            {"resource": "https://elsewhere.example"},
		"unsupported_response_type": {"response_type": "token"},
		"invalid_request":           {"code_challenge": ""},
	} {
		all[code] = ending{changed: changed, wants: map[string]string{"state": "s", "error": code}}
	}
	return all
}

func ways() map[string]way {
	return map[string]way{
		"signed in": {takes: func(a *arrival, request string) {
			a.open("/login")
			a.password(a.who)
			a.sees("h2", "Workspaces")
			a.do(chromedp.Evaluate[chromedp.Void](`location.assign("` + request + `")`))
		}},
		"password": {errors: true, takes: func(a *arrival, request string) {
			a.open(request)
			a.password(a.who)
		}},
		"code": {
			before: func(a *arrival) { a.signIn(a.who); a.codes = a.enroll() },
			takes: func(a *arrival, request string) {
				a.open(request)
				a.password(a.who)
				a.fill("code", a.codes[a.turn])
				a.press("button", "Sign in")
			},
		},
		"passkey": {
			before: func(a *arrival) {
				a.signIn(a.who)
				a.open("/settings/passkeys")
				a.press("button", "Add passkey")
				a.sees("div", "was added.")
			},
			takes: func(a *arrival, request string) {
				a.open(request)
				a.present(true)
				a.press("button", "Sign in with a passkey")
			},
		},
		"provider": {takes: func(a *arrival, request string) {
			a.open(request)
			a.press("a", "Continue with Riverside")
			a.press("a", "It is me")
		}},
		"reauthentication": {takes: func(a *arrival, request string) {
			a.open("/login")
			a.password(a.who)
			a.sees("h2", "Workspaces")
			a.open("/login/again?return=" + url.QueryEscape(request))
			a.fill("password", browsertest.Password)
			a.press("button", "Confirm")
		}},
	}
}

const privateUse = "cursor://anysphere.cursor-mcp/oauth/callback"

// Contract, section 4: the browser follows the client from the callback to any further address and scheme.
func TestChromium_FollowsClientFromCallback(t *testing.T) {
	p := newProvider(t)
	site := own(t, p.of)
	for name, way := range ways() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := site.forTest(t)
			a := &arrival{client: newLeader(t), who: s.member(perm.ProgrammesRead)}
			a.connector = s.fixture.Connector(apitest.REST, perm.ProgrammesRead)
			s.fixture.Exec(`update account.oauth_clients set redirect_uris = $2 where id = $1`,
				a.connector.ID, []string{a.client.callback, privateUse})
			a.chromium = openChromium(t, s)
			a.known = append(a.client.origins, p.server.URL+"/authorize", "claude://", "cursor://")
			if name == "provider" {
				p.vouching(map[string]any{"email": a.who.Email, "auth_time": time.Now().Unix()})
			}
			if way.before != nil {
				way.before(a)
			}
			for name, e := range endings() {
				if e.press != "" || name == "invalid_scope" || way.errors {
					a.arrives(name, way, e, a.client.callback)
				}
			}
			switch name {
			case "password":
				a.arrives("private-use callback, approve", way, endings()["approve"], privateUse)
			case "code":
				a.arrives("private-use callback, deny", way, endings()["deny"], privateUse)
			}
			a.noFaults()
		})
	}
}

// arrives sends a request on its way, ends it, and requires that the browser comes to where the client leads it.
func (a *arrival) arrives(name string, by way, e ending, callback string) {
	a.t.Helper()
	a.client.last = []string{"claude://claude.ai/settings/connectors", "cursor://anysphere.cursor-mcp/done"}[a.turn%2]
	query := asking(a.connector, callback)
	for name, value := range e.changed {
		query.Set(name, value)
	}
	a.forget()
	by.takes(a, "/oauth/authorize?"+query.Encode())
	a.turn++
	if e.press != "" {
		a.press("button", e.press)
	}
	last := a.client.last
	if callback != a.client.callback {
		last = callback
	}
	brought := a.arrival(last)
	for parameter, want := range e.wants {
		equal(a.t, name+": "+parameter, brought.Get(parameter), want)
	}
	equal(a.t, name+": has a code", brought.Get("code") != "", e.press == "Approve")
}

// forget removes the cookies, and forgets where the browser went. The sign-in page does not use a passkey by itself.
func (c *chromium) forget() {
	c.t.Helper()
	c.present(false)
	_, err := chromedp.Call(c.ctx, network.ClearBrowserCookies, cdp.Empty{})
	c.site.must(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requested = nil
}
