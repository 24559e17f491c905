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
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
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
	Credentials  Credentials
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
// tokens. workspace is the workspace's identifier, shown in Settings → Profile.
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
	return &Client{Programmes{c}, Forms{c}, OAuthClients{c}, Events{c}, Credentials{c}}, nil
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

// A Shape is the format of a refusal (spec 7.1).
type Shape string

// The shapes.
const (
	Nested  Shape = "nested"  // {"error":{"code","message","fields"?}}: module endpoints
	Flat    Shape = "flat"    // {"error","error_description"}: account endpoints, as in RFC 6749, section 5.2
	Gateway Shape = "gateway" // {"message"}: the account authorizer
	Foreign Shape = "foreign" // none of these: the response came from something between the program and Almoner
)

// Codes of the nested shape (contract, section 6).
const (
	CodeInvalid            = "VALIDATION_ERROR"
	CodeUnauthenticated    = "UNAUTHENTICATED"
	CodeForbidden          = "FORBIDDEN"
	CodeModuleNotEnabled   = "MODULE_NOT_ENABLED"
	CodeNotProvisioned     = "TENANT_NOT_PROVISIONED"
	CodeNotFound           = "NOT_FOUND"
	CodeConflict           = "CONFLICT"
	CodePreconditionFailed = "PRECONDITION_FAILED"
	CodeRateLimited        = "RATE_LIMITED"
	CodeUnavailable        = "UNAVAILABLE"
)

// ErrConsentAgain matches an *Error (errors.Is) if a grant has ended or was revoked: the program must ask the
// user for consent again.
var ErrConsentAgain = errors.New("the user must consent again")

// An Error is a refusal of the API.
type Error struct {
	Status     int // HTTP status; 0 if the refusal came from the consent page
	Shape      Shape
	Code       string            // "" in the gateway shape and in a foreign one
	Message    string            // plain words
	Fields     map[string]string // what is wrong, by field name; nested shape only
	RetryAfter time.Duration     // 0 if the response has none
	RequestID  string            // to quote when reporting it

	source string // method and path of the request, or the consent page
}

// maxFieldsShown is the maximum number of fields in the text of an error.
const maxFieldsShown = 10

// Error returns the method, the path and the error of the response, with up to 10 fields. It contains no query, header
// or body of the request.
func (e *Error) Error() string {
	var text strings.Builder
	text.WriteString("almoner: " + e.source + ":")
	if e.Status != 0 {
		fmt.Fprintf(&text, " %d", e.Status)
	}
	if e.Code != "" {
		fmt.Fprintf(&text, " %.100s", e.Code)
	}
	if e.Message != "" {
		fmt.Fprintf(&text, ": %.500s", e.Message)
	}
	for _, field := range slices.Sorted(maps.Keys(e.Fields))[:min(len(e.Fields), maxFieldsShown)] {
		fmt.Fprintf(&text, "; %.100s: %.200s", field, e.Fields[field])
	}
	if e.RequestID != "" {
		text.WriteString(" (request " + e.RequestID + ")")
	}
	return text.String()
}

// Temporary reports whether the same request may succeed later. A module that is not provisioned is not
// temporary, although its status is 503: "retrying cannot enable it" (spec 7.2).
func (e *Error) Temporary() bool {
	switch e.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return e.Code != CodeNotProvisioned && e.Code != "not_provisioned"
	}
	return false
}

// Is makes errors.Is match ErrConsentAgain.
func (e *Error) Is(target error) bool {
	return target == ErrConsentAgain && e.Shape == Flat && e.Code == "invalid_grant"
}

// refusalOf reads a refusal: "A client checks the HTTP status and the actual body shape before reading error.code"
// (spec 7.1).
func refusalOf(r request, response *http.Response, content []byte) *Error {
	e := &Error{
		Status:     response.StatusCode,
		Shape:      Foreign,
		source:     r.method + " " + r.path,
		RetryAfter: retryAfter(response.Header),
		RequestID:  shortened(response.Header.Get("X-Request-Id")),
	}
	var body struct {
		Error       json.RawMessage `json:"error"`
		Description string          `json:"error_description"`
		Message     *string         `json:"message"`
	}
	if json.Unmarshal(content, &body) == nil {
		e.readShape(bytes.TrimSpace(body.Error), body.Description, body.Message)
	}
	if e.Shape == Foreign {
		e.Message = "the response is not from Almoner: check the proxies in between"
		if e.Status >= 300 && e.Status < 400 {
			e.Message = "the response is a redirect, which is not followed: check the base URL"
		}
	}
	return e
}

func (e *Error) readShape(inner json.RawMessage, description string, message *string) {
	var nested struct {
		Code    string            `json:"code"`
		Message string            `json:"message"`
		Fields  map[string]string `json:"fields"`
	}
	var code string
	switch {
	case len(inner) > 0 && inner[0] == '{' && json.Unmarshal(inner, &nested) == nil && nested.Code != "":
		e.Shape, e.Code, e.Message, e.Fields = Nested, nested.Code, nested.Message, nested.Fields
	case len(inner) > 0 && json.Unmarshal(inner, &code) == nil && code != "":
		e.Shape, e.Code, e.Message = Flat, code, description
	case len(inner) == 0 && message != nil:
		e.Shape, e.Message = Gateway, *message
	}
}

// retryAfter reads seconds or a date (RFC 9110, section 10.2.3).
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if date, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(date))
	}
	return 0
}

// shortened limits the length of a received request id.
func shortened(id string) string { return id[:min(len(id), 64)] }

// OAuthClients gives access to the applications registered in the workspace (spec 4.2; contract, section 5).
type OAuthClients struct{ c *caller }

// A Registration describes a new application. ConnectorPlatform and Resource are for connectors only.
type Registration struct {
	Name                    string   `json:"name"`
	RedirectURIs            []string `json:"redirectUris"`
	RequiredPermissions     []string `json:"requiredPermissions"`
	ConnectorPlatform       string   `json:"connectorPlatform,omitempty"` // claude or chatgpt
	Resource                string   `json:"resource,omitempty"`
	TokenEndpointAuthMethod string   `json:"tokenEndpointAuthMethod,omitempty"`
}

// An OAuthClient is a registered application.
type OAuthClient struct {
	Registration
	ClientID     string    `json:"clientId"`
	ClientSecret Secret    `json:"clientSecret"` // only in responses that create it
	Kind         string    `json:"kind"`         // confidential or connector
	WorkspaceID  string    `json:"tenantId"`
	CreatedAt    time.Time `json:"createdAt"`
}

func (o OAuthClients) path() string {
	return "/v1/account/tenants/" + url.PathEscape(o.c.workspace) + "/oauth-clients"
}

func (o OAuthClients) one(clientID string) string { return o.path() + "/" + url.PathEscape(clientID) }

// reading returns a read of a route that has the workspace in its path.
func reading(path string) request {
	return request{method: http.MethodGet, path: path, idempotent: true}
}

// List returns the applications.
func (o OAuthClients) List(ctx context.Context) iter.Seq2[OAuthClient, error] {
	return list[OAuthClient](ctx, o.c, reading(o.path()))
}

// Get returns one application.
func (o OAuthClients) Get(ctx context.Context, clientID string) (OAuthClient, error) {
	return fetch[OAuthClient](ctx, o.c, reading(o.one(clientID)))
}

// Register creates an application. Only this response contains its secret. It is never retried, because each
// request creates another application.
func (o OAuthClients) Register(ctx context.Context, r Registration) (OAuthClient, error) {
	return fetch[OAuthClient](ctx, o.c, jsonRequest(http.MethodPost, o.path(), r))
}

// Delete deletes an application and ends all its grants.
func (o OAuthClients) Delete(ctx context.Context, clientID string) error {
	_, err := o.c.do(ctx, request{method: http.MethodDelete, path: o.one(clientID)}, nil)
	return err
}

// ReplaceSecret creates a new secret. The old one stays valid for 24 hours, or ends at once if expireOld is
// set.
func (o OAuthClients) ReplaceSecret(ctx context.Context, clientID string, expireOld bool) (Secret, error) {
	r := jsonRequest(http.MethodPost, o.one(clientID)+"/secret", map[string]bool{"expireOld": expireOld})
	out, err := fetch[OAuthClient](ctx, o.c, r)
	return out.ClientSecret, err
}

// A Me describes the credential of a client: its user, the workspaces in which it works, and its limits.
type Me struct {
	User struct {
		ID    string `json:"id"`
		Name  string `json:"name"`
		Email string `json:"email"`
	} `json:"user"`
	Credential struct {
		Type      string    `json:"type"` // "personal_access_token" or "access_token"
		Name      string    `json:"name"`
		ExpiresAt time.Time `json:"expiresAt"`
	} `json:"credential"`
	Workspaces []struct {
		ID          string   `json:"id"`
		Name        string   `json:"name"`
		Permissions []string `json:"permissions"`
	} `json:"workspaces"`
	Limits struct {
		RequestsInFlight int `json:"requestsInFlight"`
		SearchesInFlight int `json:"searchesInFlight"`
		PageSize         int `json:"pageSize"`
		PageBytes        int `json:"pageBytes"`
	} `json:"limits"`
}

// Me returns what the credential of the client may do, and where. It needs no permission.
func (c *Client) Me(ctx context.Context) (Me, error) {
	return fetch[Me](ctx, c.OAuthClients.c, c.OAuthClients.c.get("/v1/me", nil))
}

// MyUsage lists what the credential of the client did, the latest day first. It needs no permission.
func (c *Client) MyUsage(ctx context.Context, f UsageFilter) iter.Seq2[Usage, error] {
	return list[Usage](ctx, c.OAuthClients.c, filtered("/v1/me/usage", "from", f.From, "to", f.To))
}
