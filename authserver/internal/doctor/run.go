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
//	6 call       initialize, tools, one call, an invalid token              token.go
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
	table   []Finding // the possible findings
	typed   *url.URL
	client  *http.Client
	secrets secrets
	report  *Report
	step    string

	challenge map[string]string // of the first call
	resource  object            // the resource's document
	issuer    string            // the first authorization server in it
	server    object            // the authorization server's document
	redirect  string            // URI
	attempt   attempt
	tokens    tokens     // of the grant, once there is one
	session   mcpSession // with the MCP server
	signOut   *form      // once signed in
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
	r.report.Verdict = OK
	for _, worse := range []Verdict{Warn, Fail} {
		if r.report.Count(worse) > 0 {
			r.report.Verdict = worse
		}
	}
	return r.report, nil
}

func begin(o Options) (*run, error) {
	profiles := readTable[profile](profilesJSON)
	at := slices.IndexFunc(profiles, func(p profile) bool { return p.Name == o.As })
	typed, err := url.Parse(o.URL)
	switch {
	case at < 0:
		return nil, fmt.Errorf("%w: unknown client %q", ErrUsage, o.As)
	case err != nil || !isHTTP(typed):
		return nil, fmt.Errorf("%w: the URL of the MCP server must look like https://api.example.org/mcp", ErrUsage)
	case typed.User != nil || strings.ContainsAny(o.URL, "?#"):
		return nil, fmt.Errorf("%w: the URL must have no user name, query or fragment", ErrUsage)
	case (o.Email == "") != (o.Password == ""):
		return nil, fmt.Errorf("%w: --email and --password-file must be given together", ErrUsage)
	}
	redirect := cmp.Or(o.RedirectURI, profiles[at].RedirectURI)
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
		profile:  profiles[at],
		typed:    typed,
		table:    readTable[Finding](findingsJSON),
		redirect: redirect,
		client:   newClient(),
		report:   &Report{URL: o.URL, As: o.As, Findings: []Finding{}},
	}
	r.secrets.add(o.Password)
	return r, nil
}

// readTable parses an embedded table.
func readTable[Row any](content []byte) (rows []Row) {
	if err := json.Unmarshal(content, &rows); err != nil {
		panic(err) // the table is part of the program
	}
	return rows
}

// A Verdict is the severity of a finding.
type Verdict string

// The verdicts. A warning is a problem for some clients, or something that works by chance.
const (
	OK   Verdict = "ok"
	Warn Verdict = "warn"
	Fail Verdict = "fail"
)

// A Finding is the result of one check.
type Finding struct {
	Step         string  `json:"step"`
	Verdict      Verdict `json:"verdict"`
	Code         string  `json:"code"` // stable, for programs
	Symptom      string  `json:"says"`
	Detail       string  `json:"detail,omitempty"` // the values seen
	Sent         string  `json:"sent,omitempty"`
	Got          string  `json:"got,omitempty"`
	Effect       string  `json:"effect,omitempty"` // on the client; not for ok
	Remedy       string  `json:"mend,omitempty"`   // not for ok
	Milliseconds int64   `json:"milliseconds"`     // of the response, 0 for none
}

// A Report holds all findings.
type Report struct {
	URL      string    `json:"url"`
	As       string    `json:"as"`
	Verdict  Verdict   `json:"verdict"`           // the worst of the findings
	Stopped  string    `json:"stopped,omitempty"` // why the run ended early, "" if it did not
	Findings []Finding `json:"findings"`
}

// Count returns the number of findings with a verdict.
func (r *Report) Count(v Verdict) int {
	n := 0
	for _, f := range r.Findings {
		if f.Verdict == v {
			n++
		}
	}
	return n
}

// findingsJSON has the possible findings, in the format of the report. {client} stands for the client's name.
//
//go:embed findings.json
var findingsJSON []byte

// find records a finding of the table, about a response or nil, with the values seen.
func (r *run) find(code string, about *response, details ...string) {
	f := Finding{Verdict: Fail, Code: code, Symptom: code} // TestFindings_MatchCode prevents this
	if at := slices.IndexFunc(r.table, func(known Finding) bool { return known.Code == code }); at >= 0 {
		f = r.table[at]
	}
	f.Step, f.Symptom, f.Effect, f.Remedy = r.step, r.named(f.Symptom), r.named(f.Effect), r.named(f.Remedy)
	details = slices.DeleteFunc(details, func(s string) bool { return s == "" })
	f.Detail = r.secrets.show(strings.Join(details, "; "), 400)
	if about != nil {
		f.Sent, f.Got, f.Milliseconds = r.sent(about.request), r.got(about), about.took.Milliseconds()
	}
	r.report.Findings = append(r.report.Findings, f)
	r.Tell(f)
}

// stop records a finding after which the client cannot continue, and ends the step: it does not return.
func (r *run) stop(code string, about *response, details ...string) {
	r.find(code, about, details...)
	panic(errStop)
}

// A check is the code of a finding, and when to record it.
type check struct {
	when   bool
	code   string
	detail string
}

// findFirst records the finding of the first check that applies.
func (r *run) findFirst(about *response, checks []check) {
	for _, c := range checks {
		if c.when {
			r.find(c.code, about, c.detail)
			return
		}
	}
}

// findAll records the findings of all checks that apply, and reports whether there are any.
func (r *run) findAll(about *response, checks []check) (found bool) {
	for _, c := range checks {
		if c.when {
			r.find(c.code, about, c.detail)
			found = true
		}
	}
	return found
}

// either returns one of two codes.
func either(first bool, one, other string) string {
	if first {
		return one
	}
	return other
}

// named replaces {client} by the client's name, capitalized at the beginning of a sentence.
func (r *run) named(text string) string {
	begins := strings.ToUpper(r.profile.Title[:1]) + r.profile.Title[1:]
	text = strings.ReplaceAll("\n"+text, ". {client}", ". "+begins)
	text = strings.ReplaceAll(text, "\n{client}", "\n"+begins)
	return strings.TrimPrefix(strings.ReplaceAll(text, "{client}", r.profile.Title), "\n")
}

// Text writes findings as text while they are recorded.
type Text struct {
	Out  io.Writer
	Head string // written before the first finding
	step string
}

// Tell writes one finding. It ignores write errors.
func (t *Text) Tell(f Finding) {
	if t.step == "" {
		_, _ = fmt.Fprintln(t.Out, t.Head)
	}
	if f.Step != t.step {
		t.step = f.Step
		at := slices.IndexFunc(steps(), func(s step) bool { return s.name == f.Step })
		_, _ = fmt.Fprintf(t.Out, "\n%s\n", steps()[at].title)
	}
	mark := string(f.Verdict)
	if f.Verdict == Fail {
		mark = "FAIL"
	}
	_, _ = fmt.Fprintf(t.Out, "  %-4s  %s\n", mark, f.Symptom)
	for _, line := range []struct{ name, text string }{
		{"sent", f.Sent}, {"got", f.Got}, {"seen", f.Detail}, {"effect", f.Effect}, {"fix", f.Remedy},
	} {
		if line.text != "" {
			_, _ = fmt.Fprintf(t.Out, "        %-6s %s\n", line.name, line.text)
		}
	}
}

// End writes the summary.
func (r *Report) End(out io.Writer) {
	words := map[Verdict]string{OK: "All is well", Warn: "It works", Fail: "Something is wrong"}[r.Verdict]
	if r.Stopped != "" && r.Verdict != Fail {
		words += " so far"
	}
	if r.Verdict == Warn {
		words += ", with warnings"
	}
	_, _ = fmt.Fprintf(out, "\n%s: %d ok, %d warn, %d FAIL.\n", words, r.Count(OK), r.Count(Warn), r.Count(Fail))
	if r.Stopped != "" {
		_, _ = fmt.Fprintln(out, r.Stopped)
	}
}

// JSON writes the whole report as JSON.
func (r *Report) JSON(out io.Writer) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
