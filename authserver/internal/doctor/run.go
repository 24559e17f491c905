package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/doctor/wire"
	"github.com/almonerhq/almoner/shared/credential"
)

// The time limits of the connector platforms.
const (
	discoveryLimit = 10 * time.Second
	tokenLimit     = 30 * time.Second
	callLimit      = 30 * time.Second
)

// Options configures a run.
type Options struct {
	URL         string // of the MCP server, as typed into the client
	As          string // claude, claude-code, chatgpt, vscode or generic
	ClientID    string // of a registered client, "" for the profile's metadata document
	RedirectURI string // "" for the profile's

	// How consent is given: by a browser that returns to loopback, by pasting the final address, or by the
	// doctor itself. Without any of these the run ends before the sign-in.
	Browser   bool
	Pasted    io.Reader // nil if not used
	Email     string
	Password  credential.Secret
	Workspace string // name or id, if the page offers a choice

	DiscoveryTimeout time.Duration // time limit of a discovery request; 0 means 10 s, as on the connector platforms

	Replay bool // present a used refresh token again, and check that the grant ends

	Tell   func(Finding) // called for each finding
	Prompt func(string)  // called with instructions for the user
}

// ErrUsage is wrapped by errors about the options.
var ErrUsage = errors.New("usage")

// errStop ends a run that cannot continue; the reason is in the findings.
var errStop = errors.New("the run cannot continue")

// A run is one replay of a connector.
type run struct {
	Options
	profile profile
	table   map[string]Finding // the possible findings
	typed   *url.URL
	line    *wire.Line
	secrets *wire.Secrets
	report  *Report
	step    string

	offered  offered // from the challenge and the resource's document
	server   server  // from the authorization server's document
	redirect string  // URI
	attempt  attempt
	tokens   tokens     // of the grant, once there is one
	session  mcpSession // with the MCP server
	leave    *form      // the sign-out form, once signed in
}

// Run runs the steps and returns the findings. Its error wraps ErrUsage.
func Run(ctx context.Context, o Options) (*Report, error) {
	w, err := begin(o)
	if err != nil {
		return nil, err
	}
	defer w.line.Close()
	err = w.all(ctx)
	w.cleanUp(context.WithoutCancel(ctx))
	if ctx.Err() != nil {
		w.report.Stopped = "The run was cancelled."
	} else if err != nil && w.report.Stopped == "" {
		w.report.Stopped = "The client cannot continue from here."
	}
	w.report.judge()
	return w.report, nil
}

func (w *run) all(ctx context.Context) error {
	for _, one := range []struct {
		step string
		do   func(context.Context) error
	}{
		{"reach", w.reach},
		{"resource", w.resource},
		{"server", w.discover},
		{"authorize", w.authorize},
		{"token", w.exchange},
		{"call", w.call},
		{"refresh", w.refresh},
	} {
		w.step = one.step
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := one.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

func begin(o Options) (*run, error) {
	p, known := profileNamed(o.As)
	if !known {
		return nil, fmt.Errorf("%w: unknown client %q", ErrUsage, o.As)
	}
	typed, err := url.Parse(o.URL)
	switch {
	case err != nil || typed.Host == "" || (typed.Scheme != "https" && typed.Scheme != "http"):
		return nil, fmt.Errorf("%w: the URL of the MCP server must look like https://api.example.org/mcp", ErrUsage)
	case typed.User != nil || strings.ContainsAny(o.URL, "?#"):
		return nil, fmt.Errorf("%w: the URL must have no user name, query or fragment", ErrUsage)
	case o.Email != "" && o.Password == "", o.Email == "" && o.Password != "":
		return nil, fmt.Errorf("%w: --email and --password-file must be given together", ErrUsage)
	}
	redirect := p.redirectURI
	if o.RedirectURI != "" {
		redirect = o.RedirectURI
	}
	if callback, err := url.Parse(redirect); err != nil || !callback.IsAbs() {
		return nil, fmt.Errorf("%w: the redirect URI must be absolute", ErrUsage)
	} else if o.Browser && !(callback.Scheme == "http" && isLoopback(callback.Hostname())) {
		const format = "%w: the doctor cannot listen at %s: use --callback-stdin and paste the final address"
		return nil, fmt.Errorf(format, ErrUsage, redirect)
	}
	o.DiscoveryTimeout = cmp.Or(o.DiscoveryTimeout, discoveryLimit)
	line, err := wire.NewLine("almoner-doctor (as " + p.name + ")")
	if err != nil {
		return nil, err
	}
	if o.Tell == nil {
		o.Tell = func(Finding) {}
	}
	if o.Prompt == nil {
		o.Prompt = func(string) {}
	}
	w := &run{
		Options:  o,
		profile:  p,
		typed:    typed,
		line:     line,
		secrets:  &wire.Secrets{},
		redirect: redirect,
		report:   &Report{URL: o.URL, As: p.name, Findings: []Finding{}},
	}
	if w.table, err = possibleFindings(); err != nil {
		return nil, err
	}
	w.secrets.Add(o.Password)
	return w, nil
}

func (w *run) tell(f Finding) { w.Tell(f) }

// origin returns scheme and host of an address, or "" if it has none.
func origin(u *url.URL) string {
	if u == nil || u.Host == "" {
		return ""
	}
	return strings.ToLower(u.Scheme + "://" + u.Host)
}

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

// send sends a request, and records a finding if there is no response.
func (w *run) send(ctx context.Context, r wire.Request) (*wire.Answer, error) {
	answer, err := w.line.Send(ctx, r)
	if err == nil {
		return &answer, nil
	}
	codes := map[wire.Trouble]string{
		wire.NoName:      "no_such_name",
		wire.Refused:     "connection_refused",
		wire.Unreachable: "unreachable",
		wire.Certificate: "bad_certificate",
		wire.NoTLS:       "no_tls",
		wire.Late:        "too_slow",
		wire.Large:       "too_large",
		wire.Broken:      "broken_answer",
	}
	if code, ok := codes[wire.Diagnose(err)]; ok {
		if at, ok := errors.AsType[*url.Error](err); ok {
			err = at.Err // without the address, whose query may be private
		}
		w.find(code, &answer, err.Error())
	}
	return &answer, errStop
}
