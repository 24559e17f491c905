// Package token serves the token, revocation and introspection endpoints, and the documents about them: the metadata
// and the public keys.
//
//	POST /v1/account/oauth/token        Exchange     (spec 4.3, contract section 3; POST /token at the gateway is
//	                                                 the same)
//	POST /v1/account/oauth/revoke       Revoke       (RFC 7009; contract, section 5)
//	POST /v1/account/oauth/introspect   Introspect   (RFC 7662; contract, section 5)
//
//	handler.go      the token endpoint: reads untrusted bodies, strict JSON or a form (RFC 6749, section 4.1.3),
//	                decides (engine), responds; one table maps every error; too many refusals become a 429.
//	                Also the authorization server metadata (RFC 8414), and the public keys
//	introspect.go   the introspection and revocation endpoints
package token

import (
	"errors"
	"io"
	"log/slog"
	"math"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/clientmetadata"
	"github.com/almonerhq/almoner/authserver/internal/oauth/engine"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/ratelimit"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

// Endpoints are the endpoints. The fields are what they need.
type Endpoints struct {
	Issuer   string
	Resource string // {base_url}/v1, the resource of personal access tokens
	Engine   *engine.Engine
	Grants   *grant.Service
	Store    Store
	Keys     func() *accesstoken.Keys
	LastUse  interface {
		Record(standing.Standing, netip.Addr)
	} // records uses of credentials, outside the request path
	Failures *ratelimit.Limiter
	Proxies  web.Proxies
	Now      func() time.Time
	Log      *slog.Logger
}

// handler returns a handler for POST, which writes the answer or the error of serve; the router refuses other methods.
func (e Endpoints) handler(serve func(http.ResponseWriter, *http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := serve(w, r)
		if err != nil {
			e.refuse(w, r, err)
			return
		}
		web.AddRecords(r.Context(), 0) // tokens are no records
		web.JSON(w, http.StatusOK, answer)
	})
}

// Exchange exchanges a code or a refresh token.
func (e Endpoints) Exchange() http.Handler {
	known := append(engine.Parameters(), "grant_type", "client_id", "client_secret")
	return e.handler(func(w http.ResponseWriter, r *http.Request) (any, error) {
		w.Header().Set("Pragma", "no-cache") // RFC 6749, section 5.1
		parameters, err := Decode(w, r, known...)
		if err != nil {
			return nil, err
		}
		asked := request(r, parameters)
		asked.Sender = grant.Sender{Network: network(e.Proxies.ClientAddress(r)), UserAgent: userAgent(r)}
		tokens, err := e.Engine.Token(r.Context(), asked)
		if err != nil {
			return nil, e.limited(w, asked, err)
		}
		if tokens.Repeated {
			w.Header().Set(replayedHeader, "true")
		}
		response := tokenResponse{
			AccessToken:  tokens.Access.Reveal(),
			TokenType:    "Bearer",
			ExpiresIn:    int64(tokens.ExpiresIn.Seconds()),
			Scope:        tokens.Scope,
			WorkspaceID:  tokens.Grant.WorkspaceID.String(),
			RefreshToken: tokens.Refresh.Reveal(),
		}
		if tokens.Grant.Kind == client.Connector {
			response.AuthorizationExpiresIn = int64(tokens.Grant.Ends.Sub(tokens.Now).Seconds())
		}
		return response, nil
	})
}

// A client that lost a response can repeat its request with the same keyHeader. replayedHeader marks the response to a
// repeated request (contract, sections 3 and 6a).
const (
	keyHeader      = "Idempotency-Key"
	replayedHeader = "Idempotency-Replayed"
)

// request returns a request with the credentials of its client. Engine verifies them.
func request(r *http.Request, p Decoded) engine.TokenRequest {
	request := engine.TokenRequest{
		Dialect:       p.Dialect,
		GrantType:     p.Values["grant_type"].Reveal(),
		ClientID:      p.Values["client_id"].Reveal(),
		ClientSecret:  p.Values["client_secret"],
		Parameters:    p.Values,
		AssertionType: p.Values["client_assertion_type"].Reveal(),
		Assertion:     p.Values["client_assertion"],
	}
	for _, key := range r.Header.Values(keyHeader) {
		request.IdempotencyKeys = append(request.IdempotencyKeys, credential.Secret(key))
	}
	if len(r.Header.Values("Authorization")) > 0 {
		id, password, ok := basicCredentials(r)
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

// basicCredentials reads one Authorization: Basic header, whose two parts are form-encoded (RFC 6749, section 2.3.1).
func basicCredentials(r *http.Request) (id string, secret credential.Secret, ok bool) {
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

// refuse writes the error in the shape of RFC 6749, section 5.2: 400 for errors of the caller, 503 for an unavailable
// store, 401 only for a failed Basic header.
func (e Endpoints) refuse(w http.ResponseWriter, r *http.Request, err error) {
	answer := apierr.Of(err)
	refused, isRefusal := errors.AsType[*engine.TokenError](err)
	switch {
	case isRefusal:
		answer = &apierr.Error{Kind: apierr.Invalid, Code: refused.Code, Message: refused.Description}
		if refused.Challenge {
			w.Header().Set("WWW-Authenticate", `Basic realm="almoner", charset="UTF-8"`)
			answer.Kind = apierr.Unauthenticated
		}
	case errors.Is(err, store.ErrUnavailable):
		e.Log.ErrorContext(r.Context(), "store unavailable", "error", err)
		answer = apierr.New(apierr.Unavailable, "The service is temporarily unavailable. Try again.")
	case answer.Kind == apierr.Internal:
		e.Log.ErrorContext(r.Context(), "token request failed", "error", err)
	}
	apierr.Write(w, apierr.Flat, answer)
}

// network returns the /24 of an IPv4 address or the /48 of an IPv6 address, or "". It shows where a request came from
// without identifying one caller.
func network(address netip.Addr) string {
	bits := 24
	if address = address.Unmap(); address.Is6() {
		bits = 48
	}
	prefix, err := address.WithZone("").Prefix(bits)
	if err != nil || !address.IsValid() {
		return ""
	}
	return prefix.String()
}

const longestUserAgent = 60

// userAgent returns the beginning of the User-Agent, as visible ASCII text without quotation marks: pages quote it.
func userAgent(r *http.Request) string {
	visible := func(c rune) rune {
		if c >= ' ' && c <= '~' && c != '"' {
			return c
		}
		return -1
	}
	agent := strings.Map(visible, r.UserAgent())
	return strings.TrimSpace(agent[:min(len(agent), longestUserAgent)])
}

// limited counts a refusal that may come from guessing or repeating, and replaces it by a 429 if there were too many
// (contract, section 3): by the grant of the code or token that the request presents, and otherwise by its client. A
// request that cannot be read, or has no secret and no token, is cheap and is not counted.
func (e Endpoints) limited(w http.ResponseWriter, request engine.TokenRequest, err error) error {
	refused, isRefusal := errors.AsType[*engine.TokenError](err)
	if !isRefusal {
		return err
	}
	presented, authentic := engine.Presented(e.Grants.Tokens, request)
	limit := web.RateLimit{Window: time.Minute}
	switch code := refused.Code; {
	case authentic && (code == "invalid_grant" || code == "invalid_target" || code == "invalid_scope"):
		limit.Name, limit.Quota = "refusals-per-grant", ratelimit.PerGrant
		limit.Reset = e.Failures.ForGrant(presented.GrantID)
	case code == "invalid_client" || code == "invalid_grant" || code == "invalid_target":
		limit.Name, limit.Quota = "refusals-per-client", ratelimit.PerClient
		limit.Reset = e.Failures.ForClient(request.ClientID)
	}
	if limit.Reset <= 0 {
		return err
	}
	web.SetRateLimits(w.Header(), limit)
	tooMany := apierr.New(
		apierr.RateLimited,
		"Too many requests like this one failed. Try again after the time in Retry-After. Valid requests are not "+
			"limited.",
	)
	tooMany.RetryAfter = int(math.Ceil(limit.Reset.Seconds()))
	return tooMany
}

// maxBody is the length limit of a body, in bytes.
const maxBody = 64 << 10

// Decoded are the parameters of a request to an OAuth endpoint, each given once.
type Decoded struct {
	Dialect engine.Dialect
	Values  map[string]credential.Secret
}

// Decode reads the body of a request. known are the parameters of the endpoint: in JSON, each is a string whose name
// matches its case; unknown names are ignored. The query string is not read. Its errors are *apierr.Error.
func Decode(w http.ResponseWriter, r *http.Request, known ...string) (Decoded, error) {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || len(r.Header.Values("Content-Type")) > 1 {
		mediaType = ""
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return Decoded{}, apierr.New(apierr.TooLarge, "The body is larger than 64 KiB.")
	}
	if err != nil {
		return Decoded{}, apierr.New(apierr.Invalid, "The body could not be read.")
	}
	if web.Encoded(r.Header) {
		return Decoded{}, apierr.New(apierr.Invalid, web.EncodedWords)
	}
	var out Decoded
	var problem string
	switch mediaType {
	case "application/json":
		out.Dialect = engine.JSON
		out.Values, problem = decodeJSON(body, known)
	case "application/x-www-form-urlencoded":
		out.Dialect = engine.Form
		out.Values, problem = decodeForm(body)
	default:
		problem = "Content-Type must be application/json or application/x-www-form-urlencoded."
	}
	if problem != "" {
		return Decoded{}, apierr.New(apierr.Invalid, problem)
	}
	return out, nil
}

func decodeForm(body []byte) (values map[string]credential.Secret, problem string) {
	parsed, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, "The body is not a valid form."
	}
	values = map[string]credential.Secret{}
	for name, all := range parsed {
		if len(all) > 1 {
			return nil, "A parameter appears more than once."
		}
		if !utf8.ValidString(name) || !utf8.ValidString(all[0]) {
			return nil, "The body must be UTF-8."
		}
		values[name] = credential.Secret(all[0])
	}
	return values, ""
}

// decodeJSON reads by the rules of JSON v2 (duplicate keys, invalid UTF-8 and trailing data are errors). A known key
// must match its case.
func decodeJSON(body []byte, known []string) (values map[string]credential.Secret, problem string) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return nil, "The body must be one JSON object without duplicate keys."
	}
	values = map[string]credential.Secret{}
	for key, value := range members {
		if !slices.Contains(known, key) {
			if slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, key) }) {
				return nil, "Keys must be in lower case."
			}
			continue
		}
		if value.Kind() != '"' {
			return nil, key + " must be a string."
		}
		var text string
		if json.Unmarshal(value, &text) != nil {
			return nil, key + " must be a string."
		}
		values[key] = credential.Secret(text)
	}
	return values, ""
}

// Metadata returns the authorization server metadata of RFC 8414, section 2, for every URL where clients look for it
// (contract, section 1). issuer and appURL have no trailing slash. documents reports whether clients may use metadata
// documents.
func Metadata(issuer, appURL string, documents bool) ([]byte, error) {
	account := issuer + "/v1/account/oauth/"
	methods := []string{"none", "client_secret_post", "client_secret_basic"}
	document := map[string]any{
		"issuer":                                         issuer,
		"authorization_endpoint":                         appURL + "/oauth/authorize",
		"token_endpoint":                                 account + "token",
		"revocation_endpoint":                            account + "revoke",
		"introspection_endpoint":                         account + "introspect",
		"jwks_uri":                                       account + "jwks",
		"response_types_supported":                       []string{"code"},
		"response_modes_supported":                       []string{"query"},
		"grant_types_supported":                          engine.GrantTypes(),
		"code_challenge_methods_supported":               []string{"S256"},
		"introspection_endpoint_auth_methods_supported":  []string{"client_secret_basic", "client_secret_post"},
		"scopes_supported":                               append(perm.ForConnectors().Strings(), "offline_access"),
		"authorization_response_iss_parameter_supported": true,
		"client_id_metadata_document_supported":          documents,
		"token_endpoint_idempotency_key_supported":       true, // not registered with IANA
		"ui_locales_supported":                           []string{"en-GB"},
	}
	if documents { // only clients with a metadata document sign assertions
		methods = append(methods, string(client.PrivateKeyJWT))
		for _, endpoint := range []string{"token", "revocation"} {
			document[endpoint+"_endpoint_auth_signing_alg_values_supported"] = clientmetadata.Algorithms()
		}
	}
	document["token_endpoint_auth_methods_supported"] = methods
	document["revocation_endpoint_auth_methods_supported"] = methods
	return web.EncodeJSON(document)
}

// Document serves a public JSON document, the metadata or the public keys, that any web page may read and caches may
// store for five minutes. It never redirects.
func Document(document func() ([]byte, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		body, err := document()
		if err != nil {
			unavailable := apierr.New(apierr.Unavailable, "The document is temporarily unavailable.")
			unavailable.Cause = err
			apierr.Write(w, apierr.Flat, unavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "public, max-age=300")
		_, _ = w.Write(body) // an error means that the client has closed the connection
	})
}
