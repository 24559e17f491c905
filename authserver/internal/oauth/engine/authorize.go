package engine

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/ory/fosite"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// An Application is the part of an authorization request that is checked first: the client and the redirect URI. Until
// both are valid, nothing is redirected (RFC 6749, section 4.1.2.1).
type Application struct {
	Client      client.Client
	RedirectURI string
	query       url.Values
}

// A PageError is an error in the authorization request that must not be redirected. The user sees it on a page with
// status 400.
type PageError struct{ Message string }

func (p *PageError) Error() string { return p.Message }

// A RedirectError is an error that is redirected to the callback (RFC 6749, section 4.1.2.1), with State if possible.
type RedirectError struct {
	Code        string
	Description string
	State       string // "" if it was missing or too long
}

func (r *RedirectError) Error() string { return r.Code + ": " + r.Description }

// Identify finds the client of an authorization request, compares its redirect URI byte by byte, and rejects duplicate
// parameters. It returns a *PageError (with the client if it is known), client.ErrUnreachable, or an error that wraps
// store.ErrUnavailable.
func (e *Engine) Identify(ctx context.Context, rawQuery string) (Application, error) {
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return Application{}, &PageError{"The address that the application sent you to is not valid."}
	}
	for _, values := range query {
		if len(values) > 1 {
			return Application{}, &PageError{"The application sent the same parameter twice."}
		}
	}
	c, err := e.lookUpRedirect(ctx, query.Get("client_id"))
	if err != nil {
		return Application{}, err
	}
	uri := query.Get("redirect_uri")
	if uri == "" {
		return Application{Client: c}, &PageError{
			"The application did not say where to send the response: redirect_uri is missing.",
		}
	}
	if !c.MayRedirectTo(uri) {
		refused := &PageError{
			"The application asked to send the response to an address that is not registered. For your security, " +
				"nothing was sent there.",
		}
		return Application{Client: c}, refused
	}
	return Application{Client: c, RedirectURI: uri, query: query}, nil
}

const maxState = 2048

// challengePattern matches an S256 challenge: 32 bytes in base64url (RFC 7636, section 4.2).
var challengePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)

// librariesHelp ends the messages about parameters that many libraries do not send by default.
const librariesHelp = " Many libraries send it only if configured to (deploy/docs/libraries.md)."

// ParseAuthorization checks the rest of the request. It returns a *RedirectError if the request is refused.
func (e *Engine) ParseAuthorization(ctx context.Context, app Application) (consent.Request, error) {
	query := app.query
	refuse := func(code, description string) (consent.Request, error) {
		state := query.Get("state")
		if len(state) > maxState {
			state = ""
		}
		return consent.Request{}, &RedirectError{Code: code, Description: description, State: state}
	}
	if state := query.Get("state"); state == "" || len(state) > maxState {
		return refuse("invalid_request", "state is required and must have 1 to 2,048 characters."+librariesHelp)
	}
	switch {
	case query.Get("request") != "":
		return refuse("request_not_supported", "request is not supported. Send the parameters in the query.")
	case query.Get("request_uri") != "":
		return refuse("request_uri_not_supported", "request_uri is not supported. Send the parameters in the query.")
	case query.Get("response_mode") != "" && query.Get("response_mode") != "query":
		return refuse("invalid_request", "response_mode must be query.")
	}
	challenge, problem := readChallenge(app)
	if problem != "" {
		return refuse("invalid_request", problem)
	}
	switch responseType := query.Get("response_type"); {
	case responseType == "" && app.Client.Kind.Traits().PKCERequired:
		return refuse("invalid_request", "response_type=code is required.")
	case responseType != "" && responseType != "code": // fosite would accept CODE
		return refuse("unsupported_response_type", "response_type must be code.")
	}
	resource, problem := e.readResource(app)
	if problem != "" {
		return refuse("invalid_target", problem)
	}
	app.Client = app.Client.At(resource)
	permissions, problem := readScope(app)
	if problem != "" {
		return refuse("invalid_scope", problem)
	}
	if err := e.fositeAccepts(ctx, app, permissions); err != nil {
		return refuse(err.Code, err.Description)
	}
	return consent.Request{
		RequestIdentity: consent.RequestIdentity{
			ClientID:    app.Client.ID,
			RedirectURI: app.RedirectURI,
			State:       []byte(query.Get("state")),
			Challenge:   challenge,
		},
		Client:      app.Client,
		Permissions: permissions,
		Resource:    resource,
	}, nil
}

func readChallenge(app Application) (challenge, problem string) {
	challenge, method := app.query.Get("code_challenge"), app.query.Get("code_challenge_method")
	switch {
	case challenge == "" && method == "" && !app.Client.Kind.Traits().PKCERequired:
		return "", ""
	case challenge == "":
		return "", "code_challenge is required." + librariesHelp
	case method != "S256":
		return "", "code_challenge_method must be S256."
	case !challengePattern.MatchString(challenge):
		return "", "code_challenge must be an S256 challenge of 43 base64url characters."
	}
	return challenge, ""
}

func (e *Engine) readResource(app Application) (resource, problem string) {
	offered := []string{app.Client.Resource}
	if app.Client.Kind == client.Confidential {
		offered = []string{e.RESTResource}
	} else if app.Client.Address != "" {
		offered = e.Resources
	}
	requested := app.query.Get("resource")
	switch {
	case requested == "" && !app.Client.Kind.Traits().ResourceNeeded:
		return offered[0], ""
	case requested == "":
		return "", "resource is required. It identifies what the client requests access to." + librariesHelp
	case !slices.Contains(offered, requested):
		return "", "resource must exactly match a resource that this client can request."
	}
	return requested, ""
}

// offlineAccess is a scope that some platforms request. It is accepted and grants nothing (contract, section 4).
const offlineAccess = "offline_access"

// readScope returns the requested permissions. A confidential client always requests all that it requires. Known
// permissions that a connector may not have are left out; an unknown one is a problem.
func readScope(app Application) (requested perm.Set, problem string) {
	if app.Client.Kind == client.Confidential {
		return app.Client.Required, ""
	}
	scope := perm.ParseScope(app.query.Get("scope")).Without(perm.NewSet(offlineAccess))
	if len(scope) == 0 && len(app.Client.Required) > 0 {
		return app.Client.Required, ""
	}
	for _, p := range scope {
		if !perm.Known(p) {
			return nil, "scope contains an unknown permission."
		}
	}
	if requested = scope.Intersect(app.Client.Required); len(requested) == 0 {
		return nil, "scope contains no permission that this client can have at this resource."
	}
	return requested, ""
}

// passedToFosite lists the parameters that fosite checks. ParseAuthorization refuses request, request_uri and
// response_mode itself. Others that fosite knows (audience, prompt) are ignored as unknown.
var passedToFosite = []string{"client_id", "redirect_uri", "response_type", "state"}

func (e *Engine) fositeAccepts(ctx context.Context, app Application, permissions perm.Set) *RedirectError {
	form := url.Values{"scope": {permissions.Scope()}}
	for _, name := range passedToFosite {
		form[name] = slices.Clone(app.query[name])
	}
	if form.Get("response_type") == "" {
		form.Set("response_type", "code")
	}
	request := &http.Request{Method: http.MethodGet, Form: form, PostForm: url.Values{}, Header: http.Header{}}
	c := app.Client
	// Identify is stricter and handles loopback ports, so fosite sees only the accepted URI.
	c.Redirects = []string{app.RedirectURI}
	provider := e.fosite
	provider.Store = e.storage(c)
	_, err := provider.NewAuthorizeRequest(ctx, request)
	if err == nil {
		return nil
	}
	var refused *fosite.RFC6749Error
	errors.As(err, &refused)
	code := "invalid_request"
	if refused != nil && strings.HasPrefix(refused.ErrorField, "invalid_") {
		code = refused.ErrorField
	}
	return &RedirectError{Code: code, Description: "The authorization request is not valid."}
}
