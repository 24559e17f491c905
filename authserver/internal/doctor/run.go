// Package doctor finds out why a connector cannot connect.
//
// It runs the steps of one connector against a running server, from the first call without a token to the
// refresh, checks each response, and describes what is wrong, how it affects the connector, and how to fix
// it. It uses no configuration and no database: it sees what a connector sees.
//
//	1 reach      the URL, the refusal without a token and its challenge     resource.go
//	2 resource   the metadata of the protected resource (RFC 9728)          resource.go
//	3 server     the metadata of the authorization server (RFC 8414)        server.go
//	4 authorize  the request, sign-in, consent and callback                 authorize.go, consent.go
//	5 token      the exchange of the code                                   token.go
//	6 call       initialize, tools, one call, an invalid token              mcp.go
//	7 refresh    the new tokens, the old ones, a replay if requested        token.go
//	8 clean up   revocation of the grant and sign-out                       token.go
//
// The possible findings are in findings.json, the connectors in profiles.json. Invariants:
//
//	D1 No secret is shown: codes, tokens, cookies, passwords, verifiers (http.go).
//	D2 Every response is bounded in time and size, and nothing in it is executed: a hostile server is a finding too
//	   (http.go).
//	D3 The password is sent only to a page of the named server, over TLS or on loopback.
//	D4 The grant is revoked at the end, also if a later step fails or the user cancels.
//
// The caller is cmd/authserver.
package doctor

import (
	"cmp"
	"context"
	_ "embed" // for the tables
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// The time limits of the connector platforms.
const (
	discoveryTimeout = 10 * time.Second
	tokenTimeout     = 30 * time.Second
	callTimeout      = 30 * time.Second
)

// Options are the options of authserver doctor, which package kong parses, and what its caller adds. Consent is given
// by a browser that returns to loopback, by pasting the final address, or by the doctor itself. Without any of these
// the run ends before the sign-in.
type Options struct {
	As            string `enum:"claude,claude-code,chatgpt,codex,cursor,gemini-cli,opencode,vscode,generic" default:"generic" help:"Client to replay: ${enum}."`
	URL           string `arg:"" name:"url" help:"URL of the MCP server, as entered into the client."`
	ClientID      string `name:"client-id" placeholder:"ID" help:"Use this registered client instead of the client's metadata document."`
	RedirectURI   string `name:"redirect-uri" placeholder:"URI" help:"Use this redirect URI instead of the client's usual one."`
	Browser       bool   `help:"Consent in a browser on this computer."`
	CallbackStdin bool   `name:"callback-stdin" help:"Consent in any browser, and paste the final address."`
	Email         string `placeholder:"ADDRESS" help:"Sign in and consent as this user of Almoner, without a browser."`
	PasswordFile  string `name:"password-file" placeholder:"FILE" help:"File that contains the user's password, or - for standard input."`
	Workspace     string `placeholder:"NAME" help:"Workspace to choose if the page asks for one."`
	Replay        bool   `help:"Present a used refresh token again, and check that its grant ends."`

	Pasted           io.Reader         `kong:"-"` // for CallbackStdin: has the final address
	Password         credential.Secret `kong:"-"` // the content of PasswordFile
	DiscoveryTimeout time.Duration     `kong:"-"` // of a discovery request; 0 means 10 s, as on the connector platforms
	Tell             func(Finding)     `kong:"-"` // called for each finding
	Prompt           func(string)      `kong:"-"` // called with instructions for the user
}

// ErrUsage is wrapped by errors about the options.
var ErrUsage = errors.New("usage")

// errStop is the panic value of a step that cannot continue; perform recovers it. The reason is in the findings.
var errStop = errors.New("the run cannot continue")

// perform calls a part of the run, and reports whether it completed. Nearly every line of a part can end it, so a part
// stops by a panic, as the parser of package regexp/syntax does.
func perform(part func()) (completed bool) {
	defer func() {
		if reason := recover(); reason != nil && reason != errStop {
			panic(reason)
		}
	}()
	part()
	return true
}

// A profile describes one connector: what it sends and what it requires.
type profile struct {
	Name            string `json:"name"`
	Title           string `json:"title"`
	Hosted          bool   `json:"hosted"`          // calls from its vendor's servers, not from the user's computer
	Document        string `json:"document"`        // its client id metadata document, "" for none
	RedirectURI     string `json:"redirectURI"`     // the port can be replaced
	Origin          string `json:"origin"`          // of its pages, for requests from a browser
	RootFirst       bool   `json:"rootFirst"`       // reads the resource's document without the path first
	NeedsIss        bool   `json:"needsIss"`        // uses its metadata document only if iss is advertised
	ClientIDSetting string `json:"clientIDSetting"` // of a client that otherwise only registers itself; "" for others
	PortSetting     string `json:"portSetting"`     // for the port of RedirectURI, of a client that otherwise uses any
}

// profilesJSON has the connectors (their makers' documentation and public issue threads, autumn 2026).
//
//go:embed profiles.json
var profilesJSON []byte

// A run is one replay of a connector.
type run struct {
	Options
	profile profile
	table   map[string]Finding // the possible findings
	typed   *url.URL
	client  *http.Client
	secrets secrets
	report  *Report
	step    string

	offered  offered // from the challenge and the resource's document
	server   server  // from the authorization server's document
	redirect string  // URI
	attempt  attempt
	tokens   tokens     // of the grant, once there is one
	session  mcpSession // with the MCP server
	signOut  *form      // once signed in
}

// A step is one part of a run.
type step struct {
	name, title string
	do          func(*run, context.Context) // nil for the last step, which always runs
}

func steps() []step {
	return []step{
		{"reach", "1 Reach the server", (*run).reach},
		{"resource", "2 The protected resource's metadata", (*run).readResource},
		{"server", "3 The authorization server's metadata", (*run).discover},
		{"authorize", "4 Authorize", (*run).authorize},
		{"token", "5 Tokens", (*run).exchange},
		{"call", "6 First calls", (*run).call},
		{"refresh", "7 Refresh", (*run).refresh},
		{"clean up", "8 Clean up", nil},
	}
}

func titleOf(name string) string {
	for _, s := range steps() {
		if s.name == name {
			return s.title
		}
	}
	return ""
}

// Run runs the steps and returns the findings. Its error wraps ErrUsage.
func Run(ctx context.Context, o Options) (*Report, error) {
	r, err := begin(o)
	if err != nil {
		return nil, err
	}
	defer r.client.CloseIdleConnections()
	completed := true
	for _, s := range steps() {
		r.step = s.name
		if s.do != nil && completed && ctx.Err() == nil {
			completed = perform(func() { s.do(r, ctx) })
		}
	}
	r.cleanUp(context.WithoutCancel(ctx))
	if ctx.Err() != nil {
		r.report.Stopped = "The run was cancelled."
	} else if !completed && r.report.Stopped == "" {
		r.report.Stopped = "The client cannot continue from here."
	}
	r.report.judge()
	return r.report, nil
}

func begin(o Options) (*run, error) {
	p, err := profileNamed(o.As)
	if err != nil {
		return nil, err
	}
	typed, err := url.Parse(o.URL)
	switch {
	case err != nil || !isHTTP(typed):
		return nil, fmt.Errorf("%w: the URL of the MCP server must look like https://api.example.org/mcp", ErrUsage)
	case typed.User != nil || strings.ContainsAny(o.URL, "?#"):
		return nil, fmt.Errorf("%w: the URL must have no user name, query or fragment", ErrUsage)
	case (o.Email == "") != (o.Password == ""):
		return nil, fmt.Errorf("%w: --email and --password-file must be given together", ErrUsage)
	}
	redirect := cmp.Or(o.RedirectURI, p.RedirectURI)
	if callback, err := url.Parse(redirect); err != nil || !callback.IsAbs() {
		return nil, fmt.Errorf("%w: the redirect URI must be absolute", ErrUsage)
	} else if o.Browser && !(callback.Scheme == "http" && isLoopback(callback.Hostname())) {
		const format = "%w: the doctor cannot listen at %s: use --callback-stdin and paste the final address"
		return nil, fmt.Errorf(format, ErrUsage, redirect)
	}
	o.DiscoveryTimeout = cmp.Or(o.DiscoveryTimeout, discoveryTimeout)
	if o.Tell == nil {
		o.Tell = func(Finding) {}
	}
	if o.Prompt == nil {
		o.Prompt = func(string) {}
	}
	r := &run{
		Options:  o,
		profile:  p,
		typed:    typed,
		redirect: redirect,
		client:   newClient(),
		report:   &Report{URL: o.URL, As: p.Name, Findings: []Finding{}},
	}
	r.secrets.add(o.Password)
	r.table, err = possibleFindings()
	return r, err
}

func profileNamed(name string) (profile, error) {
	var profiles []profile
	if err := json.Unmarshal(profilesJSON, &profiles); err != nil {
		return profile{}, fmt.Errorf("read the profiles: %w", err)
	}
	at := slices.IndexFunc(profiles, func(p profile) bool { return p.Name == name })
	if at < 0 {
		return profile{}, fmt.Errorf("%w: unknown client %q", ErrUsage, name)
	}
	return profiles[at], nil
}

// origin returns scheme and host of an address, or "" if it has none.
func origin(u *url.URL) string {
	if u == nil || u.Host == "" {
		return ""
	}
	return strings.ToLower(u.Scheme + "://" + u.Host)
}

// isHTTP reports whether an address is an absolute http or https URL.
func isHTTP(u *url.URL) bool { return u.Host != "" && (u.Scheme == "https" || u.Scheme == "http") }

func isLoopback(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	address, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || (err == nil && address.Unmap().IsLoopback())
}

// isPrivate reports whether a host is an address that the internet cannot reach.
func isPrivate(host string) bool {
	address, err := netip.ParseAddr(host)
	address = address.Unmap()
	return isLoopback(host) ||
		(err == nil && (address.IsPrivate() || address.IsLinkLocalUnicast() || address.IsUnspecified()))
}
