package app_test

import (
	"encoding/base32"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
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
	secret, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(strings.ReplaceAll(key, " ", ""))
	c.site.must(err)
	code, err := authenticator.Secret(secret).Code(time.Now())
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

// Contract, section 4: the browser follows the client from the callback to any further address and scheme.
func TestChromium_FollowsClientFromCallback(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	s := serve(t, func(c *app.Config) { p.of(c); c.Passkeys = true })
	ada, ben, carys := s.person(), s.person(), s.person() // Carys has no second factor
	for _, who := range []browsertest.Person{ada, ben, carys} {
		s.fixture.Join(s.fixture.WorkspaceID, who.ID, perm.ProgrammesRead)
	}
	p.vouching(map[string]any{"email": ada.Email, "auth_time": time.Now().Unix()})
	client := newLeader(t)
	connector := s.fixture.Connector("https://api.example.org/v1", perm.ProgrammesRead)
	s.fixture.Exec(`update account.oauth_clients set redirect_uris = $2 where id = $1`,
		connector.ID, []string{client.callback, "cursor://anysphere.cursor-mcp/oauth/callback"})
	c := openChromium(t, s)
	c.known = append(client.origins, p.server.URL+"/authorize", "claude://", "cursor://")
	c.signIn(ben)
	codes := c.enroll()
	c.signOut()
	c.signIn(ada)
	c.open("/settings/passkeys")
	c.press("button", "Add passkey")
	c.sees("div", "was added.")
	ways := map[string]func(request string){
		"signed in": func(request string) {
			c.open("/login")
			c.password(ada)
			c.sees("h2", "Workspaces")
			c.do(chromedp.Evaluate[chromedp.Void](`location.assign("` + request + `")`))
		},
		"password": func(request string) {
			c.open(request)
			c.password(ada)
		},
		"code": func(request string) {
			c.open(request)
			c.password(ben)
			c.fill("code", codes[0])
			codes = codes[1:]
			c.press("button", "Sign in")
		},
		"passkey": func(request string) {
			c.open(request)
			c.present(true)
			c.press("button", "Sign in with a passkey")
		},
		"provider": func(request string) {
			c.open(request)
			c.press("a", "Continue with Riverside")
			c.press("a", "It is me")
		},
		"reauthentication": func(request string) {
			c.open("/login")
			c.password(carys)
			c.sees("h2", "Workspaces")
			c.open("/login/again?return=" + url.QueryEscape(request))
			c.fill("password", browsertest.Password)
			c.press("button", "Confirm")
		},
	}
	type end struct {
		press   string // button of the consent page
		changed map[string]string
		wants   map[string]string
	}
	ends := map[string]end{
		"approve": {press: "Approve", wants: map[string]string{"state": "s"}},
		"deny":    {press: "Deny", wants: map[string]string{"state": "s", "error": "access_denied"}},
	}
	errors := map[string]map[string]string{
		"invalid_scope":             {"scope": "nothing:we:know"},
		"invalid_target":            {"resource": "https://elsewhere.example"},
		"unsupported_response_type": {"response_type": "token"},
		"invalid_request":           {"code_challenge": ""},
	}
	for code, changed := range errors {
		ends[code] = end{changed: changed, wants: map[string]string{"state": "s", "error": code}}
	}
	ends["without state"] = end{
		changed: map[string]string{"state": ""}, wants: map[string]string{"state": "", "error": "invalid_request"},
	}
	lasts := []string{"claude://claude.ai/settings/connectors", "cursor://anysphere.cursor-mcp/done"}
	turn := 0
	arrives := func(name string, way func(string), e end, callback string) {
		t.Helper()
		turn++
		client.last = lasts[turn%len(lasts)]
		query := url.Values{
			"client_id":             {connector.ID.String()},
			"redirect_uri":          {callback},
			"state":                 {"s"},
			"response_type":         {"code"},
			"resource":              {connector.Resource},
			"code_challenge":        {"E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"},
			"code_challenge_method": {"S256"},
		}
		for name, value := range e.changed {
			query.Set(name, value)
		}
		c.forget()
		way("/oauth/authorize?" + query.Encode())
		if e.press != "" {
			c.press("button", e.press)
		}
		last := client.last
		if callback != client.callback {
			last = callback
		}
		brought := c.arrival(last)
		for parameter, want := range e.wants {
			if brought.Get(parameter) != want {
				t.Errorf("%s: %s is %q, want %q", name, parameter, brought.Get(parameter), want)
			}
		}
		if e.press == "Approve" && brought.Get("code") == "" {
			t.Errorf("%s: no code", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ways)) {
		for _, ending := range slices.Sorted(maps.Keys(ends)) {
			everyError := name == "password" || name == "signed in" || name == "reauthentication"
			if e := ends[ending]; e.press != "" || ending == "invalid_scope" || everyError {
				arrives(name+", "+ending, ways[name], e, client.callback)
			}
		}
	}
	arrives("private-use callback", ways["password"], ends["approve"], "cursor://anysphere.cursor-mcp/oauth/callback")
	arrives("private-use callback, deny", ways["code"], ends["deny"], "cursor://anysphere.cursor-mcp/oauth/callback")
	c.noFaults()
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
