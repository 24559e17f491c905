package client

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

const address = "https://claude.ai/oauth/claude-code-client-metadata"

func document() Document {
	return Document{
		ClientID:      address,
		Name:          "Claude Code",
		Redirects:     []string{"http://localhost/callback", "http://127.0.0.1/callback"},
		GrantTypes:    []string{"authorization_code", "refresh_token"},
		ResponseTypes: []string{"code"},
		AuthMethod:    "none",
	}
}

func TestParseAddress_AcceptsOneSpelling(t *testing.T) {
	for good, host := range map[string]string{
		address:                                 "claude.ai",
		"https://chatgpt.com/oauth/client.json": "chatgpt.com",
		"https://localhost:8443/a":              "localhost:8443",
		"https://a.example/a%20b":               "a.example",
		"https://a.example/..a/b..":             "a.example",
	} {
		if got, ok := ParseAddress(good); !ok || got != host {
			t.Errorf("%s: %q %v", good, got, ok)
		}
	}
	for _, bad := range []string{
		"", "claude.ai/oauth", "http://claude.ai/oauth", "HTTPS://claude.ai/oauth", "https://claude.ai",
		"https://claude.ai/", "https:///oauth", "https://claude.ai/oauth?", "https://claude.ai/oauth?a=b",
		"https://claude.ai/oauth#", "https://claude.ai/oauth#x", "https://me@claude.ai/oauth",
		"https://me:pw@claude.ai/oauth", "https://claude.ai/./oauth", "https://claude.ai/../oauth",
		"https://claude.ai/a/..", "https://claude.ai/a/%2e%2e/b", "https://claude.ai/a/%2E/b",
		"https://Claude.ai/oauth", "https://claude.ai/a b", "https://claude.ai/a\\b",
		"https://claude.ai\\@evil.example/a", "https://claude.ai/\u00e9", "https://claude.ai/a\n",
		"https://claude.ai/%zz", "https://claude.ai:x/a", "https://" + strings.Repeat("a", 600) + "/b",
		" https://claude.ai/oauth", "ftp://claude.ai/oauth", "https://[::1/a",
	} {
		if _, ok := ParseAddress(bad); ok {
			t.Errorf("%q accepted as a document URL", bad)
		}
	}
}

func TestDocument_AcceptReturnsConnectorWithoutWorkspace(t *testing.T) {
	d := document()
	d.GrantTypes = append(d.GrantTypes, "urn:ietf:params:oauth:grant-type:device_code")
	d.Redirects = append(d.Redirects, "com.example.app:/callback", "http://evil.example/cb", "intent:/cb")
	c, err := d.Accept(address, "claude")
	testkit.Must(t, err)
	if c.Kind != Connector || c.PublicID() != address || c.Domain() != "claude.ai" || c.Platform != "claude" ||
		c.AuthMethod != AuthNone {
		t.Errorf("%+v", c)
	}
	if c.WorkspaceID != [16]byte{} || c.Resource != "" || c.Required.Scope() != perm.ForConnectors().Scope() ||
		c.Name != "Claude Code" {
		t.Errorf("%+v", c)
	}
	if !slices.Equal(c.Redirects, []string{
		"http://localhost/callback", "http://127.0.0.1/callback", "com.example.app:/callback",
	}) {
		t.Errorf("redirects: %v", c.Redirects)
	}
	d.AuthMethod, d.Name = "", "\u200b"
	if c, err := d.Accept(address, ""); err != nil || c.AuthMethod != AuthNone || c.Name != "claude.ai" {
		t.Errorf("without method and name: %+v %v", c, err)
	}
	d.AuthMethod, d.KeysURL = "private_key_jwt", "https://claude.ai/oauth/jwks.json"
	if c, err := d.Accept(address, ""); err != nil || c.AuthMethod != PrivateKeyJWT || c.KeysURL != d.KeysURL {
		t.Errorf("with keys elsewhere: %+v %v", c, err)
	}
	d.KeysURL, d.Keys = "", []byte(`{"keys":[]}`)
	if c, err := d.Accept(address, ""); err != nil || string(c.Keys) != string(d.Keys) {
		t.Errorf("with keys inside: %+v %v", c, err)
	}
}

func TestDocument_AcceptRefusesInvalidDocuments(t *testing.T) {
	keys := func(at string, inside []byte) func(*Document) {
		return func(d *Document) { d.AuthMethod, d.KeysURL, d.Keys = "private_key_jwt", at, inside }
	}
	for name, change := range map[string]func(*Document){
		"another client_id":     func(d *Document) { d.ClientID = address + "/" },
		"no client_id":          func(d *Document) { d.ClientID = "" },
		"a secret":              func(d *Document) { d.Secret = []byte(`"x"`) },
		"client_secret_post":    func(d *Document) { d.AuthMethod = "client_secret_post" },
		"client_secret_jwt":     func(d *Document) { d.AuthMethod = "client_secret_jwt" },
		"tls_client_auth":       func(d *Document) { d.AuthMethod = "tls_client_auth" },
		"no code grant":         func(d *Document) { d.GrantTypes = []string{"client_credentials"} },
		"no code response":      func(d *Document) { d.ResponseTypes = []string{"token"} },
		"no redirect URI":       func(d *Document) { d.Redirects = nil },
		"no usable one":         func(d *Document) { d.Redirects = []string{"javascript:alert(1)", "http://a.b/cb"} },
		"no keys":               keys("", nil),
		"keys of another host":  keys("https://evil.example/jwks", nil),
		"keys by plain http":    keys("http://claude.ai/jwks", nil),
		"keys in and elsewhere": keys("https://claude.ai/jwks", []byte("{}")),
	} {
		d := document()
		change(&d)
		_, err := d.Accept(address, "claude")
		var refusal *DocumentError
		if !errors.As(err, &refusal) || refusal.Message == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMayRedirectTo_AnyLoopbackPortOnlyForDocuments(t *testing.T) {
	known := Client{Address: address, Redirects: []string{
		"http://localhost/callback", "http://127.0.0.1:33418/", "http://[::1]/cb?a=1", "https://claude.ai/cb",
		"https://localhost/tls",
	}}
	registered := Client{Redirects: known.Redirects}
	for _, good := range []string{
		"http://localhost:1/callback", "http://localhost:65535/callback", "http://localhost/callback",
		"http://127.0.0.1:8080/", "http://127.0.0.1/", "http://[::1]:5000/cb?a=1",
	} {
		if !known.MayRedirectTo(good) {
			t.Errorf("%s: refused", good)
		}
		if exact := slices.Contains(known.Redirects, good); registered.MayRedirectTo(good) != exact {
			t.Errorf("%s: a registered client may use another port", good)
		}
	}
	for _, bad := range []string{
		"", "http://localhost:1/Callback", "http://localhost:1/callback/", "http://localhost:1/callback?x=1",
		"http://localhost:0/callback", "http://localhost:65536/callback", "http://localhost:/callback",
		"http://localhost:1:2/callback", "http://127.0.0.1:1/callback", "http://[::1]:1/cb",
		"http://localhost:1@evil.example/callback", "http://localhost:1.evil.example/callback",
		"http://localhost.evil.example/callback", "https://localhost:1/tls", "https://claude.ai:444/cb",
		"http://127.0.0.2:8080/", "http://LOCALHOST:1/callback", "http://localhost:1/callback#",
		"http://[0:0::1]:1/cb?a=1", "http://127.1:8080/", "HTTP://localhost:1/callback", "http://localhost:+1/callback",
		"http://localhost:1/callback\n",
	} {
		if known.MayRedirectTo(bad) {
			t.Errorf("%q: accepted", bad)
		}
	}
}

func FuzzLoopback(f *testing.F) {
	f.Add("http://localhost:1/callback")
	f.Fuzz(func(t *testing.T, uri string) {
		c := Client{Address: address, Redirects: []string{"http://localhost/callback"}}
		if c.MayRedirectTo(uri) && refuseRedirect(Connector, uri) != "" {
			t.Errorf("%q cannot be registered, but is accepted", uri)
		}
	})
}

func TestDomains_HostsMatchExactly(t *testing.T) {
	domains, err := ParseDomains("claude.ai=claude, chatgpt.com=chatgpt,vscode.dev=other,localhost:8443=other")
	testkit.Must(t, err)
	for at, want := range map[string]string{
		address:                                 "claude",
		"https://chatgpt.com/oauth/client.json": "chatgpt",
		"https://vscode.dev/x":                  "",
		"https://localhost:8443/x":              "",
	} {
		if platform, ok := domains.Serve(at); !ok || platform != want {
			t.Errorf("%s: %q %v", at, platform, ok)
		}
	}
	for _, other := range []string{
		"https://api.claude.ai/x", "https://claude.ai.evil.example/x", "https://evilclaude.ai/x",
		"https://claude.ai:8443/x", "https://claude.ai:443/x", "https://localhost/x", "https://claude.ai./x",
		"https://evil.example/claude.ai", "http://claude.ai/x", "https://claude.ai",
	} {
		if _, ok := domains.Serve(other); ok {
			t.Errorf("%s is served", other)
		}
	}
	for _, bad := range []string{
		"claude.ai", "claude.ai=", "claude.ai=netscape", "https://claude.ai=claude", "Claude.ai=claude",
		"*.claude.ai=claude", "claude.ai/=claude", "claude.ai/../x=claude", "claude.ai/x%2fy=claude",
		"claude.ai/*=claude", "claude.ai/x?y=claude", "claude.ai/x/=claude,claude.ai/x/=other", "=claude",
		"claude.ai=claude,", "claude.ai=claude,claude.ai=other", "a b=claude", "me@claude.ai=claude",
	} {
		if _, err := ParseDomains(bad); err == nil {
			t.Errorf("%q: accepted", bad)
		}
	}
	if none, err := ParseDomains("none"); err != nil || len(none) != 0 {
		t.Error(none, err)
	}
}

func TestDomains_PathLimitsHost(t *testing.T) {
	domains, err := ParseDomains(
		"pages.example/acme/=claude,pages.example/acme/beta/=other,one.example/oauth/client.json=chatgpt," +
			"claude.ai=claude,claude.ai/lab/=other",
	)
	testkit.Must(t, err)
	for at, want := range map[string]string{
		"https://pages.example/acme/client.json": "claude",
		"https://pages.example/acme/a/b":         "claude",
		"https://pages.example/acme/beta/client": "",
		"https://one.example/oauth/client.json":  "chatgpt",
		"https://claude.ai/oauth/client":         "claude",
		"https://claude.ai/lab/client":           "",
	} {
		if platform, ok := domains.Serve(at); !ok || platform != want {
			t.Errorf("%s: %q %v, want %q", at, platform, ok, want)
		}
	}
	for _, other := range []string{
		"https://pages.example/eve/client.json", "https://pages.example/acme", "https://pages.example/acmeevil/x",
		"https://pages.example/Acme/x", "https://pages.example//acme/x", "https://pages.example/eve/acme/x",
		"https://pages.example/acme/..%2feve/x", "https://pages.example/acme/%2e%2e/eve/x",
		"https://pages.example/acme/../eve/x", "https://pages.example/acme/%5c../eve",
		"https://pages.example:8443/acme/x", "https://www.pages.example/acme/x",
		"https://one.example/oauth/client.json/x", "https://one.example/oauth/client.jsonx",
		"https://one.example/oauth/", "https://one.example/oauth/client",
	} {
		if _, ok := domains.Serve(other); ok {
			t.Errorf("%s is served", other)
		}
	}
}
