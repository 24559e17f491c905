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

// An Application is what is registered (spec 2.2), and where. It asks a user for consent and gets tokens in their name.
type Application struct {
	BaseURL     string // of the API, which is the issuer
	AppURL      string // of the consent page
	ClientID    string
	RedirectURI string       // exactly as registered
	HTTPClient  *http.Client // nil: one with a timeout of 30 seconds
}

// A Connector is a public application with PKCE and refresh tokens (spec 5.2.3).
type Connector struct {
	Application
	Resource string   // exactly as registered: the base URL and /v1, or /mcp
	Scopes   []string // permissions to ask for; none: all that the connector is registered for
}

// A ConfidentialApp is an application with a server, which keeps a secret (spec 5.2.2).
type ConfidentialApp struct {
	Application
	Secret Secret
}

// A Question is one request for a user's consent: the address to send the browser to, and what to keep in the user's
// session until it comes back.
type Question struct {
	URL      string
	State    string
	Verifier string // of PKCE: a secret of this one request
}

// String keeps the verifier out of every log.
func (q Question) String() string { return "[a request for consent]" }

// GoString is String, for %#v.
func (q Question) GoString() string { return q.String() }

// Ask makes a request for consent.
func (c Connector) Ask() Question {
	return c.ask(c.Scopes, oauth2.SetAuthURLParam("resource", c.Resource))
}

// Ask makes a request for consent, with PKCE, which is optional for these applications and enforced once it was sent.
func (a ConfidentialApp) Ask() Question { return a.ask(nil) }

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

// Finish takes the query that the browser came back with and exchanges its code. The token has a refresh token: give it
// to Source. A user who said no is an *Error with the code access_denied.
func (c Connector) Finish(ctx context.Context, q Question, callback url.Values) (*oauth2.Token, error) {
	code, err := c.code(q, callback)
	if err != nil {
		return nil, err
	}
	return c.exchangeForm(ctx, url.Values{
		"grant_type": {"authorization_code"}, "client_id": {c.ClientID}, "resource": {c.Resource}, "code": {code},
		"code_verifier": {q.Verifier}, "redirect_uri": {c.RedirectURI},
	})
}

// Finish takes the query that the browser came back with and exchanges its code. The token is good for 90 days and is
// not refreshed: give it to oauth2.StaticTokenSource, and ask again before its Expiry. A user who said no is an *Error
// with the code access_denied.
func (a ConfidentialApp) Finish(ctx context.Context, q Question, callback url.Values) (*oauth2.Token, error) {
	code, err := a.code(q, callback)
	if err != nil {
		return nil, err
	}
	return a.exchangeJSON(ctx, map[string]string{
		"client_id":     a.ClientID,
		"client_secret": a.Secret.Reveal(),
		"code":          code,
		"redirect_uri":  a.RedirectURI,
		"code_verifier": q.Verifier,
	})
}

var (
	errState  = errors.New("almoner: the browser came back with another state: this is not the answer to that question")
	errIssuer = errors.New("almoner: the answer is another server's (RFC 9207)")
	errNoCode = errors.New("almoner: the browser came back without a code")
)

// code judges what the browser brought back (spec 4.4; RFC 9207).
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
			asked:   "the consent page",
		}
	}
	if callback.Get("code") == "" {
		return "", errNoCode
	}
	return callback.Get("code"), nil
}

// Revoke gives the grant back that a token belongs to, whichever of the two it is (RFC 7009). A token that is not known
// is no error.
func (c Connector) Revoke(ctx context.Context, token string) error {
	return c.post(
		ctx,
		revokePath,
		formType,
		[]byte(url.Values{"client_id": {c.ClientID}, "token": {token}}.Encode()),
		nil,
	)
}

// Revoke gives the grant back that an access token belongs to (RFC 7009). A token that is not known is no error.
func (a ConfidentialApp) Revoke(ctx context.Context, token string) error {
	return a.postJSON(
		ctx,
		revokePath,
		map[string]string{"client_id": a.ClientID, "client_secret": a.Secret.Reveal(), "token": token},
		nil,
	)
}

func (a Application) caller() (*caller, error) {
	base, err := address(a.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("%w (the application's base URL)", err)
	}
	return &caller{base: base, http: faithful(a.HTTPClient), agent: DefaultUserAgent}, nil
}
