package client

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"
)

// A Client speaks to one deployment about one workspace.
type Client struct {
	Programmes   Programmes
	Forms        Forms
	OAuthClients OAuthClients
}

// patience is how long a request may take, where the program brings no http.Client of its own.
const patience = 30 * time.Second

// DefaultUserAgent is what the client calls itself.
const DefaultUserAgent = "almoner-go/1"

// An Option changes how a Client works.
type Option func(*caller)

// WithHTTPClient sends requests with a client of the program's own, whose Transport and Timeout count. Its redirect
// policy does not: no redirect is followed.
func WithHTTPClient(h *http.Client) Option { return func(c *caller) { c.http = faithful(h) } }

// WithUserAgent names the program in front of DefaultUserAgent.
func WithUserAgent(name string) Option {
	return func(c *caller) { c.agent = name + " " + DefaultUserAgent }
}

// Retries say how often and how long to wait for an answer that may be another one later. The zero value never tries
// again.
type Retries struct {
	Most        int           // tries besides the first
	LongestWait time.Duration // before one of them; a Retry-After beyond it is the caller's to wait for. 0: 30 seconds
}

// WithRetries sends reads, and writes with an Idempotency-Key, again where Error.Temporary says so, or where no answer
// came. It waits as Retry-After says, or a little longer each time, and no longer than the context lasts.
func WithRetries(r Retries) Option { return func(c *caller) { c.retries = r } }

// New makes a client for the API at baseURL ("https://api.example.org"), which is the issuer of its tokens too. tenant
// is the workspace's identifier, as Settings → User shows it.
func New(baseURL, workspace string, tokens oauth2.TokenSource, options ...Option) (*Client, error) {
	base, err := address(baseURL)
	if err != nil {
		return nil, err
	}
	if workspace == "" || tokens == nil {
		return nil, errors.New("almoner: a client needs a workspace and a source of tokens")
	}
	c := &caller{base: base, workspace: workspace, tokens: tokens, http: faithful(nil), agent: DefaultUserAgent}
	for _, option := range options {
		option(c)
	}
	return &Client{Programmes{c}, Forms{c}, OAuthClients{c}}, nil
}

// address reads the address of a deployment's host, without its trailing slash.
func address(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" {
		return "", errors.New(
			"almoner: the address must be one like https://api.example.org, without user, query or fragment",
		)
	}
	return strings.TrimRight(text, "/"), nil
}

// faithful is the client, or one of ours, made to follow no redirect (C5).
func faithful(h *http.Client) *http.Client {
	if h == nil {
		h = &http.Client{Timeout: patience}
	}
	own := *h
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}
