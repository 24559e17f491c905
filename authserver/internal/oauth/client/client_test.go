package client

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var resources = []string{"https://api.example.org/v1", "https://api.example.org/mcp"}

func registration() Registration {
	return Registration{
		Name:      "Donor sync",
		Redirects: []string{"https://app.example.org/callback"},
		Required:  []string{"programmes:read:programmes"},
	}
}

func connectorRegistration() Registration {
	r := registration()
	r.Platform, r.Resource = "claude", resources[0]
	return r
}

func TestAccept_DerivesKindOfClient(t *testing.T) {
	c, err := registration().Accept(resources)
	if err != nil || c.Kind != Confidential || c.AuthMethod != SecretJSON {
		t.Errorf("confidential: %+v %v", c, err)
	}
	c, err = connectorRegistration().Accept(resources)
	if err != nil || c.Kind != Connector || c.AuthMethod != AuthNone || c.Resource != resources[0] {
		t.Errorf("connector: %+v %v", c, err)
	}
}

func TestAccept_RefusesInvalidRegistrations(t *testing.T) {
	connector := func(resource string, required ...string) func(*Registration) {
		return func(r *Registration) { r.Platform, r.Resource, r.Required = "claude", resource, required }
	}
	for name, c := range map[string]struct {
		change   func(*Registration)
		redirect bool
	}{
		"empty name":            {func(r *Registration) { r.Name = "  " }, false},
		"long name":             {func(r *Registration) { r.Name = strings.Repeat("x", 101) }, false},
		"invisible name":        {func(r *Registration) { r.Name = "\u200e" }, false},
		"zero-width space":      {func(r *Registration) { r.Name = "Claude\u200b" }, false},
		"name of dashes":        {func(r *Registration) { r.Name = "- -" }, false},
		"name with a NUL":       {func(r *Registration) { r.Name = "a\x00" }, false},
		"name with direction":   {func(r *Registration) { r.Name = "safe\u202eelbadnu" }, false},
		"no permission":         {func(r *Registration) { r.Required = nil }, false},
		"unknown permission":    {func(r *Registration) { r.Required = []string{"programmes:read:everything"} }, false},
		"permission in capital": {func(r *Registration) { r.Required = []string{"Programmes:read:programmes"} }, false},
		"unknown platform":      {func(r *Registration) { r.Platform, r.Resource = "netscape", resources[0] }, false},
		"connector only":        {func(r *Registration) { r.Connector = true }, false},
		"platform, no resource": {func(r *Registration) { r.Platform = "claude" }, false},
		"resource, no platform": {func(r *Registration) { r.Resource = resources[0] }, false},
		"unknown resource":      {func(r *Registration) { r.Platform, r.Resource = "claude", resources[0]+"/" }, false},
		"account access":        {connector(resources[0], "account:api:access"), false},
		"unused at resource":    {connector(resources[1], "programmes:read:programmes", "engage:read:forms"), false},
		"secret for connector": {func(r *Registration) {
			r.Platform, r.Resource, r.AuthMethod = "claude", resources[0], "client_secret_post"
		}, false},
		"unknown auth method": {func(r *Registration) { r.AuthMethod = "private_key_jwt" }, false},
		"none for a web app":  {func(r *Registration) { r.AuthMethod = "none" }, false},
		"no redirect":         {func(r *Registration) { r.Redirects = nil }, true},
		"21 redirects":        {func(r *Registration) { r.Redirects = make([]string, 21) }, true},
	} {
		r := registration()
		c.change(&r)
		_, err := r.Accept(resources)
		var refusal *Refusal
		if !errors.As(err, &refusal) || refusal.Redirect != c.redirect || refusal.Message == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAccept_NamesMisspeltPermission(t *testing.T) {
	for _, r := range []Registration{registration(), connectorRegistration()} {
		r.Required = []string{"programmes:read:programmes", "programmes:reed:programmes"}
		_, err := r.Accept(resources)
		if err == nil || !strings.Contains(err.Error(), "requiredPermissions[1]") ||
			!strings.Contains(err.Error(), "programmes:write:programmes") {
			t.Errorf("%v", err)
		} else if offered := strings.Contains(err.Error(), "account:api:access"); offered != (r.Platform == "") {
			t.Errorf("platform %q, account:api:access offered: %t", r.Platform, offered)
		}
	}
}

func TestRefuseRedirect(t *testing.T) {
	for _, good := range []string{
		"https://app.example.org/callback", "https://app.example.org:8443/cb?tenant=1",
		"http://127.0.0.1:8090/callback", "http://localhost/cb", "http://[::1]:9/cb", "https://app.example.org",
		"https://xn--bcher-kva.example/cb", "https://app.example.org.:443/cb", "https://198.51.100.7/cb",
		"https://7.example/cb", "https://0x.example/cb", "https://[2001:db8::1]:65535/cb", "http://localhost:1/cb",
		"https://a_b.example/cb",
	} {
		if reason := refuseRedirect(Confidential, good); reason != "" {
			t.Errorf("%s: %s", good, reason)
		}
	}
	for _, bad := range []string{
		"", "/callback", "app.example.org/cb", "http://app.example.org/cb", "http://localhost.evil.example/cb",
		"http://127.0.0.1.evil.example/cb", "http://127.0.0.1@evil.example/cb", "https://user@app.example.org/cb",
		"https://user:pw@app.example.org/cb", "https://@app.example.org/cb", "https://app.example.org/cb#",
		"https://app.example.org/cb#x", "https://*.example.org/cb", "https://app.example.org/*", "javascript:alert(1)",
		"JAVASCRIPT:alert(1)", "data:text/html,x", "com.example.app:/cb", "https:app.example.org", "https:///cb",
		"https://app.example.org/cb?code=1", "https://app.example.org/cb?State=1", "https://app.example.org/cb?iss=x",
		"https://app.example.org/cb?error=x", "https://app.example.org/cb?error_description=x",
		"https://app.example.org/cb?response=x", "https://app.example.org/cb?%63ode=1", "https://app.example.org/c b",
		"https://app.example.org\\@evil.example/", "https://app.example.org/\u00e9", "https://app.example.org/cb\n",
		"https://app.example.org/" + strings.Repeat("x", 2048), "https://app.example.org/cb?a=%zz",
		"https://app.example.org:70000/cb", "https://app.example.org:65536/cb", "https://app.example.org:0/cb",
		"https://app.example.org:/cb", `https://a"b.example/cb`, "https://a.example;b/cb", "https://a,b.example/cb",
		"https://a..example/cb", "https://.example/cb", "https://a'b.example/", "https://[1.2.3.4]/cb",
		"https://256.1.1.1/cb", "https://1.2.3.4.5/cb", "https://example.org.1/cb", "https://2130706433/cb",
		"https://0x7f.1/cb", "https://0x7f000001/cb", "https://010.1.1.1/cb", "https://198.51.100.7./cb",
		"https://xn--/cb", "https://[fe80::1%25eth0]/cb", "https://a!b.example/", "https://a(b).example/",
		"https://$.example/",
	} {
		for _, kind := range []Kind{Confidential, Connector} {
			private := kind == Connector && strings.HasPrefix(bad, "com.example.app:")
			if accepted := refuseRedirect(kind, bad) == ""; accepted != private {
				t.Errorf("%q of a %s client: accepted is %t", bad, kind, accepted)
			}
		}
	}
}

// Contract, section 5: a connector may have any scheme but those of the list.
func TestRefuseRedirect_ConnectorMayHavePrivateUseScheme(t *testing.T) {
	for _, good := range []string{
		"cursor://anysphere.cursor-mcp/oauth/callback",
		"vscode://vscode.github-authentication/did-authenticate?windowId=1", "com.example.app:/oauth2redirect",
		"com.example.app:callback", "CLAUDE://auth", "app:///cb", "app://1/cb?mode=x", "webapp:/cb", "myms-app:/cb",
		"chromey:/cb",
	} {
		if reason := refuseRedirect(Connector, good); reason != "" {
			t.Errorf("%s: %s", good, reason)
		}
		if refuseRedirect(Confidential, good) == "" || refuseRedirect(Service, good) == "" {
			t.Errorf("%s: accepted of a client that is no connector", good)
		}
	}
	bad := []string{
		"web+app://host/cb", "WEB+app://host/cb", "ms-settings:/x", "chrome-extension://abc/cb",
		"x-apple.systempreferences:/x", "x-appleapp:/cb", "app:", "app://", "app://me@host/cb",
		"app://host/cb#x", "app:/cb#", "app://*/cb", "app:/cb/*",
		"app:/cb?code=1", "app:cb?x=1&STATE=2", "app:/cb?iss=", "app:/cb?error=x", "app:/cb?error_description=x",
		"app:/cb?response=x", "app://a;b/cb", "app://h%6Fst/cb", "app://host:70000/cb", "app://host:/cb", "app:/c b",
		"app:\\\\host",
		"app:/\u00e9", "app:/" + strings.Repeat("x", 2048), "1app:/cb", "http://app.example.org/cb", "https:/cb",
	}
	for _, scheme := range []string{
		"javascript", "vbscript", "data", "blob", "file", "filesystem", "about", "view-source", "chrome", "ws", "wss",
		"ftp", "ssh", "mailto", "tel", "sms", "geo", "magnet", "intent", "android-app",
	} {
		bad = append(bad, scheme+":x", scheme+"://host/cb", strings.ToUpper(scheme)+":/cb")
	}
	for _, uri := range bad {
		if refuseRedirect(Connector, uri) == "" {
			t.Errorf("%q: accepted", uri)
		}
	}
}

func TestRefuseRedirect_GivesReason(t *testing.T) {
	for uri, words := range map[string]string{
		"https://u:p@a.example/":   "must not contain a user name or password",
		"https://u@a.example/":     "must not contain a user name or password",
		"https://a%C3%A9.example/": "must not contain % escapes",
		"https://*.example/":       "must not contain a wildcard",
		"https://a.example:70000/": "port from 1 to 65535",
		"https://a.example;b/":     "letters, digits, hyphens, underscores and dots",
		"http://a.example/":        "must use https",
	} {
		if reason := refuseRedirect(Confidential, uri); !strings.Contains(reason, words) {
			t.Errorf("%s: %s", uri, reason)
		}
	}
}

func TestAccept_NamesInvalidRedirectURIByIndex(t *testing.T) {
	r := registration()
	r.Redirects = []string{
		"https://a.example/cb", "https://b.example/cb", "https://user:pass-word@c.example/cb?token=s3cret",
	}
	_, err := r.Accept(resources)
	if err == nil || !strings.HasPrefix(err.Error(), "redirectUris[2]: A redirect URI must not contain a user name") ||
		strings.Contains(err.Error(), "c.example") {
		t.Errorf("%v", err)
	}
	r.Redirects = r.Redirects[2:]
	if _, err = r.Accept(resources); err == nil || !strings.HasPrefix(err.Error(), "A redirect URI") {
		t.Errorf("of one: %v", err)
	}
}

func TestSecretMatches_AcceptsEveryLiveSecret(t *testing.T) {
	c := Client{Secrets: [][]byte{credential.Hash("one"), credential.Hash("two")}}
	if !c.SecretMatches("one") || !c.SecretMatches("two") || c.SecretMatches("three") || c.SecretMatches("") {
		t.Error("SecretMatches: each live secret must match, and no other")
	}
	if (Client{}).SecretMatches("") {
		t.Error("a client without a secret accepts the empty secret")
	}
}

// A secret is 256 random bits, so it needs no slow hash (contract, section 2).
func TestSecretMatches_WrongSecretCostsMicroseconds(t *testing.T) {
	c := Client{Secrets: [][]byte{credential.Hash("one"), credential.Hash("two")}}
	testkit.Quick(t, 100*time.Microsecond, func() {
		if c.SecretMatches("alm_cs_0000000000000000000000000000000000000000000000000") {
			t.Fatal("a wrong secret matches")
		}
	})
}

func TestTraits_UnknownKindAllowsNothing(t *testing.T) {
	if Kind("superuser").Traits() != (Traits{}) || Service.Traits().Authorizes {
		t.Error("an unknown kind or a service may authorize")
	}
}

// FuzzRedirect checks that a browser reads the host of every accepted URI as this package does, and that the URI
// contains no parameter of an authorization response.
func FuzzRedirect(f *testing.F) {
	for _, seed := range []string{
		"https://app.example.org/callback", "http://127.0.0.1:8090/cb", "http://[::1]/cb?x=1", "https://a@b/",
		"https://a\\@b/", "https://a/#", "https://a/?code=x", "https://a/?C%6fde=x", "http://localhost.evil.example/",
		"https:a", "https:///a", "javascript:alert(1)", "https://a/*", "https://a:b/", "https://a/%zz",
		"https://0%80000", "https://a?iss=1;state=2",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		if refuseRedirect(Confidential, uri) != "" {
			return
		}
		scheme, rest, found := strings.Cut(uri, "://")
		authority := rest
		if end := strings.IndexAny(rest, "/?#"); end >= 0 {
			authority = rest[:end]
		}
		host := authority
		if colon := strings.LastIndexByte(authority, ':'); colon > strings.LastIndexByte(authority, ']') {
			host = authority[:colon]
		}
		isPlain := strings.EqualFold(scheme, "http")
		isLoopback := host == "localhost" || strings.HasPrefix(host, "127.") || strings.HasPrefix(host, "[")
		if !found || (!isPlain && !strings.EqualFold(scheme, "https")) || (isPlain && !isLoopback) || host == "" ||
			strings.ContainsAny(uri, "#*\\ ") ||
			strings.Contains(authority, "@") {
			t.Errorf("%q accepted", uri)
		}
		parsed, err := url.Parse(uri)
		if err != nil || parsed.Host != authority || len(uri) > maxRedirectLength {
			t.Fatalf("%q accepted", uri)
		}
		for _, name := range reservedParameters {
			if parsed.Query().Has(name) {
				t.Errorf("%q accepted with %s", uri, name)
			}
		}
	})
}

// FuzzRedirectComparison checks that a registered redirect URI matches only itself.
func FuzzRedirectComparison(f *testing.F) {
	registered := Client{Redirects: []string{"https://app.example.org/callback", "http://127.0.0.1:8090/callback?x=1"}}
	byDocument := Client{Address: "https://claude.ai/client.json", Redirects: registered.Redirects}
	for _, seed := range append(
		registered.Redirects,
		"", "HTTPS://app.example.org/callback", "https://app.example.org/callback/",
		"https://app.example.org:443/callback", "http://127.0.0.1:1/callback?x=1", "http://127.0.0.1/callback?x=1",
		"http://127.0.0.1:8090/callback", "http://127.0.0.1:8090/callback?x=1&b=2",
		"http://127.0.0.1:8090/Callback?x=1", "http://127.0.0.1:8090/callback?x=1#",
		"http://127.0.0.1:8090/x/../callback?x=1", "HTTP://127.0.0.1:8090/callback?x=1",
		"http://localhost:8090/callback?x=1", "http://127.0.0.1:8090/callback/?x=1",
		"http://127.0.0.1:8090/callback?x=%31", "http://user@127.0.0.1:8090/callback?x=1",
		"https://127.0.0.1:8090/callback?x=1", "http://127.0.0.1:8090@evil.example/callback?x=1",
		"http://127.0.0.1.evil.example:8090/callback?x=1", "http://127.0.0.1:080/callback?x=1",
	) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		same := uri == registered.Redirects[0] || uri == registered.Redirects[1]
		if registered.MayRedirectTo(uri) != same {
			t.Errorf("%q, registered: %t", uri, !same)
		}
		if !byDocument.MayRedirectTo(uri) || same {
			return
		}
		port, found := strings.CutPrefix(uri, "http://127.0.0.1")
		port, path := strings.CutSuffix(port, "/callback?x=1")
		number, err := strconv.Atoi(strings.TrimPrefix(port, ":"))
		if !found || !path || (port != "" && (port[0] != ':' || err != nil || number < 0 || number > 65535)) {
			t.Errorf("%q accepted as a loopback URI", uri)
		}
	})
}
