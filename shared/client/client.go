// Package client is a Go client for the Almoner API.
//
// A Client acts in one workspace with the tokens of an oauth2.TokenSource: use oauth2.StaticTokenSource for a
// personal access token, Connector.Source for a token that refreshes, and ConfidentialApp for a token that is
// valid for 90 days.
//
//   - C1 Lists are iterators. They follow the cursor to the end, also past empty pages (spec 4.1).
//   - C2 A refusal of the API is an *Error, in whichever of the three shapes it was written (spec 7.1). It says
//     whether a retry can help, and never contains a credential or any part of a query.
//   - C3 Each write to the Resource API carries a unique Idempotency-Key, so that it can be retried and takes effect
//     once (contract, section 6). Only such writes and reads are ever retried, and only with WithRetries.
//   - C4 A refresh token is used once: a Source refreshes for all its callers, one at a time, and returns a new token
//     only once it is stored. Presenting a replaced token ends the grant (spec 5.2.3).
//   - C5 A credential is sent to the base URL only: no redirect is followed.
//   - C6 Each token request carries a unique Idempotency-Key and is retried if no response arrives. Almoner accepts the
//     repeated request for 60 seconds (contract, section 3), so a lost response does not revoke the grant.
//
// Everything in this package is safe for concurrent use. No type of this package prints a secret, but
// *oauth2.Token does.
package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"
)

// A Client calls one deployment on behalf of one workspace.
type Client struct {
	Programmes   Programmes
	Forms        Forms
	OAuthClients OAuthClients
	Events       Events
}

// requestTimeout is the timeout of a request, unless the program passes its own http.Client.
const requestTimeout = 30 * time.Second

// DefaultUserAgent is the User-Agent of the client.
const DefaultUserAgent = "almoner-go/1"

// An Option configures a Client.
type Option func(*caller)

// WithHTTPClient sends requests with the given client, using its Transport and Timeout. Its redirect policy
// is ignored: no redirect is followed.
func WithHTTPClient(h *http.Client) Option { return func(c *caller) { c.http = withoutRedirects(h) } }

// WithUserAgent prepends the name of the program to DefaultUserAgent.
func WithUserAgent(name string) Option {
	return func(c *caller) { c.agent = name + " " + DefaultUserAgent }
}

// Retries configures how often to retry and how long to wait. The zero value never retries.
type Retries struct {
	Most        int           // retries after the first try
	LongestWait time.Duration // before a retry; a longer Retry-After is returned to the caller. 0 means 30 seconds
}

// WithRetries retries reads, and writes with an Idempotency-Key, if Error.Temporary is true or no response
// came. It waits as Retry-After says, or with a growing backoff, and no longer than the context lasts.
func WithRetries(r Retries) Option { return func(c *caller) { c.retries = r } }

// New makes a client for the API at baseURL ("https://api.example.org"), which is also the issuer of its
// tokens. workspace is the workspace's identifier, shown in Settings → User.
func New(baseURL, workspace string, tokens oauth2.TokenSource, options ...Option) (*Client, error) {
	c, err := newCaller(baseURL, nil)
	if err != nil {
		return nil, err
	}
	if workspace == "" || tokens == nil {
		return nil, errors.New("almoner: a client requires a workspace and a token source")
	}
	c.workspace, c.tokens = workspace, tokens
	for _, option := range options {
		option(c)
	}
	return &Client{Programmes{c}, Forms{c}, OAuthClients{c}, Events{c}}, nil
}

// address returns the address of a deployment without its trailing slash.
func address(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" {
		return "", errors.New(
			"almoner: the address must look like https://api.example.org, without user, query or fragment")
	}
	return strings.TrimRight(text, "/"), nil
}

// withoutRedirects returns a copy of the client, or of the default one, that follows no redirect (C5).
func withoutRedirects(h *http.Client) *http.Client {
	if h == nil {
		h = &http.Client{Timeout: requestTimeout}
	}
	own := *h
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}

// Secret is a client secret. It formats as [redacted], so that it does not appear in a log or an error by
// mistake.
type Secret string

const redacted = "[redacted]"

// Reveal returns the plain secret.
func (s Secret) Reveal() string { return string(s) }

// String, Format, LogValue and MarshalText return [redacted] instead of the content.
func (s Secret) String() string               { return redacted }
func (s Secret) Format(f fmt.State, _ rune)   { _, _ = f.Write([]byte(redacted)) }
func (s Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// A Date is a day in the form YYYY-MM-DD. "" means no date and is null in JSON.
type Date string

// DateOf returns the day of the time in its own time zone.
func DateOf(t time.Time) Date { return Date(t.Format(time.DateOnly)) }

// Time returns the beginning of the day in UTC. It returns an error if the day does not exist or is empty.
func (d Date) Time() (time.Time, error) { return time.Parse(time.DateOnly, string(d)) }

// MarshalJSON implements json.Marshaler.
func (d Date) MarshalJSON() ([]byte, error) {
	if d == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(d))
}
