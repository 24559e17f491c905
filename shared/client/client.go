package client

import (
	"errors"
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
	base, err := address(baseURL)
	if err != nil {
		return nil, err
	}
	if workspace == "" || tokens == nil {
		return nil, errors.New("almoner: a client requires a workspace and a token source")
	}
	c := &caller{base: base, workspace: workspace, tokens: tokens, http: withoutRedirects(nil), agent: DefaultUserAgent}
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
			"almoner: the address must look like https://api.example.org, without user, query or fragment",
		)
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
