package token

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"

	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

// Exchanger decides token requests. Its errors are *engine.TokenError, or wrap store.ErrUnavailable.
type Exchanger interface {
	Token(ctx context.Context, request engine.TokenRequest) (engine.Tokens, error)
}

// Deps are the dependencies of the endpoint.
type Deps struct {
	Engine   Exchanger
	Tokens   engine.TokenReader
	Failures Failures
	Proxies  web.Proxies
	Log      *slog.Logger
}

// New returns a handler for POST; the router refuses other methods.
func New(d Deps) http.Handler {
	known := append(engine.Parameters(), "grant_type", "client_id", "client_secret")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Pragma", "no-cache") // RFC 6749, section 5.1
		parameters, err := Decode(w, r, known...)
		if err != nil {
			Refuse(w, r, err, d.Log)
			return
		}
		asked := request(r, parameters)
		asked.Network, asked.UserAgent = network(d.Proxies.ClientAddress(r)), userAgent(r)
		tokens, err := d.Engine.Token(r.Context(), asked)
		if err != nil {
			Refuse(w, r, d.limited(asked, err), d.Log)
			return
		}
		if tokens.Repeated {
			w.Header().Set(replayedHeader, "true")
		}
		web.JSON(w, http.StatusOK, response(tokens))
	})
}

// A client that lost a response can repeat its request with the same keyHeader. replayedHeader marks the response to a
// repeated request (contract, sections 3 and 6a).
const (
	keyHeader      = "Idempotency-Key"
	replayedHeader = "Idempotency-Replayed"
)

func request(r *http.Request, p Parameters) engine.TokenRequest {
	secret := func(name string) credential.Secret { return credential.Secret(p.Values[name]) }
	request := engine.TokenRequest{
		Dialect:       engine.Form,
		GrantType:     p.Values["grant_type"],
		ClientID:      p.Values["client_id"],
		ClientSecret:  secret("client_secret"),
		Parameters:    map[string]credential.Secret{},
		AssertionType: p.Values["client_assertion_type"],
		Assertion:     secret("client_assertion"),
	}
	for name := range p.Values {
		request.Parameters[name] = secret(name)
	}
	if p.JSON {
		request.Dialect = engine.JSON
	}
	for _, key := range r.Header.Values(keyHeader) {
		request.IdempotencyKeys = append(request.IdempotencyKeys, credential.Secret(key))
	}
	if len(r.Header.Values("Authorization")) > 0 {
		id, password, ok := BasicCredentials(r)
		// A request must use one authentication method (RFC 6749, section 2.3). A client_id in the form must match the
		// header.
		if !ok || request.ClientSecret != "" || (request.ClientID != "" && request.ClientID != id) {
			request.OtherAuth = true
			return request
		}
		request.Basic, request.ClientID, request.ClientSecret = true, id, password
	}
	return request
}

// BasicCredentials reads one Authorization: Basic header, whose two parts are form-encoded (RFC 6749, section 2.3.1).
func BasicCredentials(r *http.Request) (id string, secret credential.Secret, ok bool) {
	user, password, ok := r.BasicAuth()
	if !ok || len(r.Header.Values("Authorization")) != 1 {
		return "", "", false
	}
	id, err1 := url.QueryUnescape(user)
	text, err2 := url.QueryUnescape(password)
	return id, credential.Secret(text), errors.Join(err1, err2) == nil
}

type tokenResponse struct {
	AccessToken            string `json:"access_token"`
	TokenType              string `json:"token_type"`
	ExpiresIn              int64  `json:"expires_in"`
	Scope                  string `json:"scope"`
	WorkspaceID            string `json:"tenant_id"`
	RefreshToken           string `json:"refresh_token,omitempty"`
	AuthorizationExpiresIn int64  `json:"authorization_expires_in,omitempty"`
}

func response(t engine.Tokens) tokenResponse {
	return tokenResponse{
		AccessToken:            t.Access.Reveal(),
		TokenType:              "Bearer",
		ExpiresIn:              int64(t.ExpiresIn.Seconds()),
		Scope:                  t.Scope,
		WorkspaceID:            t.WorkspaceID.String(),
		RefreshToken:           t.Refresh.Reveal(),
		AuthorizationExpiresIn: int64(t.Remaining.Seconds()),
	}
}

// Refuse writes the error in the shape of RFC 6749, section 5.2: 400 for errors of the caller, 503 for an unavailable
// store, 401 only for a failed Basic header.
func Refuse(w http.ResponseWriter, r *http.Request, err error, log *slog.Logger) {
	var refused *engine.TokenError
	var shaped *apierr.Error
	switch {
	case errors.As(err, &refused):
		answer := &apierr.Error{Kind: apierr.Invalid, Code: refused.Code, Message: refused.Description}
		if refused.Challenge {
			w.Header().Set("WWW-Authenticate", `Basic realm="almoner", charset="UTF-8"`)
			answer.Kind = apierr.Unauthenticated
		}
		apierr.Write(w, apierr.Flat, answer)
	case errors.As(err, &shaped):
		if limited, ok := errors.AsType[*limitedError](err); ok {
			web.SetRateLimits(w.Header(), limited.limit)
		}
		apierr.Write(w, apierr.Flat, shaped)
	case errors.Is(err, store.ErrUnavailable):
		log.ErrorContext(r.Context(), "store unavailable", "error", err)
		apierr.Write(
			w,
			apierr.Flat,
			apierr.New(apierr.Unavailable, "The service is temporarily unavailable. Try again."),
		)
	default:
		log.ErrorContext(r.Context(), "token request failed", "error", err)
		apierr.Write(w, apierr.Flat, apierr.Of(err))
	}
}
