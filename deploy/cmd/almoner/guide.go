package main

import (
	"fmt"
	"io"
	"net/url"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/deploy/local/stack"
)

// printGuide prints addresses, logins and example requests.
func printGuide(out io.Writer, s *stack.Stack, file string) {
	d := s.Demo
	line := func(format string, arguments ...any) { _, _ = fmt.Fprintf(out, format+"\n", arguments...) }
	line("")
	line("Almoner is running. Press Ctrl-C to stop it.")
	line("")
	line("  API                           %s", d.BaseURL)
	line("  API documentation             %s/v1/docs", d.BaseURL)
	line("  Sign-in, consent and settings %s", d.AppURL)
	line("  MCP endpoint                  %s/mcp", d.BaseURL)
	if d.Mailbox != nil {
		line("  Sent mail                     %s", d.Mailbox.URL)
	}
	line("")
	line("Sign in at %s/settings/user as", d.AppURL)
	for _, user := range []struct {
		demo.User
		what string
	}{
		{d.Users.Owner, "has every permission in all five workspaces"},
		{d.Users.Reader, "reads programmes in " + d.Workspaces.Main.Name},
		{d.Users.Registrar, "manages API access there, and reads programmes"},
		{d.Users.Outsider, "is a member of " + d.Workspaces.Empty.Name + " only"},
	} {
		line("  %-34s %s   %s", user.Email, user.Password, user.what)
	}
	line("")
	printRequests(line, d)
	line("Read the OAuth metadata, as a client does first:")
	line("  curl %s/.well-known/oauth-authorization-server; echo", d.BaseURL)
	line("")
	line("Connect a connector in the browser (the code is in the callback's address, where nothing listens):")
	line("  %s", consentURL(d))
	line("Exchange the code within a minute:")
	line("  CODE=... # from the callback's address")
	line("  %s; echo", exchangeCommand(d))
	line("")
	line("All of this and more as JSON: %s", file)
	line("Logs: %s    Data: %s", s.LogDir(), s.StoreDir())
}

// printRequests prints the workspaces and some first requests.
func printRequests(line func(format string, arguments ...any), d demo.Demo) {
	line("%s is the workspace to try things in: choose it in Settings. The other four show special cases:",
		d.Workspaces.Main.Name)
	for _, one := range []struct {
		demo.Workspace
		what string
	}{
		{d.Workspaces.Empty, "has no programmes"},
		{d.Workspaces.ProgrammesDisabled, "has the module Programmes off"},
		{d.Workspaces.Unprovisioned, "has the module Programmes on, but not set up"},
		{d.Workspaces.LLMDisabled, "has LLM integration off"},
	} {
		line("  %-34s %s", one.Name, one.what)
	}
	line("")
	line("Try the reader's personal access token, and list programmes of %s with it:", d.Workspaces.Main.Name)
	line("  TOKEN=%s WORKSPACE=%s", d.Tokens.Reader, d.Workspaces.Main.ID)
	line("  curl %s/v1/me -H \"Authorization: Bearer $TOKEN\"; echo", d.BaseURL)
	line(
		"  curl '%s/v1/programmes/programmes?limit=3' -H \"Authorization: Bearer $TOKEN\" "+
			"-H \"X-Tenant-Id: $WORKSPACE\"; echo",
		d.BaseURL,
	)
	line("")
}

// The example of a PKCE verifier and its challenge (RFC 7636, appendix B).
const (
	exampleVerifier  = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
	exampleChallenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
)

// consentURL returns an authorization request of a connector.
func consentURL(d demo.Demo) string {
	c := d.Clients.MCP
	return d.AppURL + "/oauth/authorize?" + url.Values{
		"response_type": {"code"}, "client_id": {c.ClientID}, "redirect_uri": {c.RedirectURI}, "resource": {c.Resource},
		"scope": {c.Scope}, "state": {"demo"}, "code_challenge_method": {"S256"},
		"code_challenge": {exampleChallenge},
	}.Encode()
}

// exchangeCommand returns a command that exchanges the code of consentURL, which is in the variable CODE.
func exchangeCommand(d demo.Demo) string {
	c := d.Clients.MCP
	fixed := url.Values{
		"grant_type": {"authorization_code"}, "client_id": {c.ClientID}, "redirect_uri": {c.RedirectURI},
		"resource": {c.Resource}, "code_verifier": {exampleVerifier},
	}
	return "curl " + d.BaseURL + "/v1/account/oauth/token -d '" + fixed.Encode() + "' -d code=$CODE"
}
