package client

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/oauth2"
)

// An Application is a registered application (spec 2.2) and its deployment. It asks a user for consent and
// gets tokens on the user's behalf.
type Application struct {
	BaseURL     string // of the API, which is the issuer
	AppURL      string // of the consent page
	ClientID    string
	RedirectURI string       // exactly as registered
	HTTPClient  *http.Client // nil for a client with a timeout of 30 seconds
}

// A Connector is a public application with PKCE and refresh tokens (spec 5.2.3).
type Connector struct {
	Application
	Resource string   // exactly as registered: the base URL followed by /v1 or /mcp
	Scopes   []string // permissions to request; empty for all that the connector is registered for
}

// A ConfidentialApp is an application with a server that stores a secret (spec 5.2.2).
type ConfidentialApp struct {
	Application
	Secret Secret
}

// A Question is one request for a user's consent: the address for the browser, and the values to store in the
// user's session until the browser returns.
type Question struct {
	URL      string
	State    string
	Verifier string // of PKCE: a secret of this one request
}

// String does not reveal the verifier.
func (q Question) String() string { return "[a request for consent]" }

// GoString is String for %#v.
func (q Question) GoString() string { return q.String() }

// Ask makes a request for consent.
func (c Connector) Ask() Question {
	return c.ask(c.Scopes, oauth2.SetAuthURLParam("resource", c.Resource))
}

// Ask makes a request for consent with PKCE, which is optional for these applications and enforced once sent.
func (c ConfidentialApp) Ask() Question { return c.ask(nil) }

func (a Application) ask(scopes []string, more ...oauth2.AuthCodeOption) Question {
	q := Question{State: rand.Text(), Verifier: oauth2.GenerateVerifier()}
	config := oauth2.Config{
		ClientID:    a.ClientID,
		RedirectURL: a.RedirectURI,
		Scopes:      scopes,
		Endpoint:    oauth2.Endpoint{AuthURL: strings.TrimRight(a.AppURL, "/") + "/oauth/authorize"},
	}
	q.URL = config.AuthCodeURL(q.State, append(more, oauth2.S256ChallengeOption(q.Verifier))...)
	return q
}

// Finish checks the query of the browser's redirect and exchanges its code. The token has a refresh token:
// pass it to Source. If the user refused, the error is an *Error with the code access_denied.
func (c Connector) Finish(ctx context.Context, q Question, callback url.Values) (*oauth2.Token, error) {
	code, err := c.code(q, callback)
	if err != nil {
		return nil, err
	}
	return c.exchangeForm(ctx, url.Values{
		"grant_type": {"authorization_code"}, "client_id": {c.ClientID}, "resource": {c.Resource}, "code": {code},
		"code_verifier": {q.Verifier}, "redirect_uri": {c.RedirectURI},
	}, rand.Text())
}

// Finish checks the query of the browser's redirect and exchanges its code. The token is valid for 90 days
// and cannot be refreshed: pass it to oauth2.StaticTokenSource, and ask for consent again before its Expiry.
// If the user refused, the error is an *Error with the code access_denied.
func (c ConfidentialApp) Finish(ctx context.Context, q Question, callback url.Values) (*oauth2.Token, error) {
	code, err := c.code(q, callback)
	if err != nil {
		return nil, err
	}
	return c.exchangeJSON(ctx, map[string]string{
		"client_id":     c.ClientID,
		"client_secret": c.Secret.Reveal(),
		"code":          code,
		"redirect_uri":  c.RedirectURI,
		"code_verifier": q.Verifier,
	})
}

var (
	errState  = errors.New("almoner: the callback has another state: it does not belong to this request")
	errIssuer = errors.New("almoner: the callback is from another issuer (RFC 9207)")
	errNoCode = errors.New("almoner: the callback has no code")
)

// code checks the redirect's parameters and returns the code (spec 4.4; RFC 9207).
func (a Application) code(q Question, callback url.Values) (string, error) {
	if q.State == "" || subtle.ConstantTimeCompare([]byte(callback.Get("state")), []byte(q.State)) != 1 {
		return "", errState
	}
	if callback.Get("iss") != strings.TrimRight(a.BaseURL, "/") {
		return "", errIssuer
	}
	if refused := callback.Get("error"); refused != "" {
		return "", &Error{
			Shape:   Flat,
			Code:    refused,
			Message: callback.Get("error_description"),
			source:  "the consent page",
		}
	}
	if callback.Get("code") == "" {
		return "", errNoCode
	}
	return callback.Get("code"), nil
}

// Revoke revokes the grant of an access token or a refresh token (RFC 7009). An unknown token is not an
// error.
func (c Connector) Revoke(ctx context.Context, token string) error {
	return c.post(ctx, revokePath, formType, []byte(url.Values{"client_id": {c.ClientID}, "token": {token}}.Encode()),
		nil)
}

// Revoke revokes the grant of an access token (RFC 7009). An unknown token is not an error.
func (c ConfidentialApp) Revoke(ctx context.Context, token string) error {
	return c.postJSON(ctx, revokePath,
		map[string]string{"client_id": c.ClientID, "client_secret": c.Secret.Reveal(), "token": token}, nil)
}

func (a Application) caller() (*caller, error) {
	base, err := address(a.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("%w (the application's base URL)", err)
	}
	return &caller{base: base, http: withoutRedirects(a.HTTPClient), agent: DefaultUserAgent}, nil
}
